"""AWS services, each behind one module."""
