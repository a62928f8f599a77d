"""Tables: a group of them per module; functions take an Access and never commit."""
