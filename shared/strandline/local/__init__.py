"""The whole service on one machine; not shipped to AWS."""
