"""The promoter: extract nodes and edges from warm chains."""
