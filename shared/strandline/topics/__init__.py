"""The topic index: topic trees in published snapshots, and the queries answered from them."""
