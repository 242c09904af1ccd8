"""Where records go: one file per destination, all with the same three methods."""
