"""Graph analytics: communities, and how they are listed and explored."""
