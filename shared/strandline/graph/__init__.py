"""The knowledge graph: typed nodes and edges that cite the events they rest on."""
