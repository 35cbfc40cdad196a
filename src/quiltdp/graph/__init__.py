"""The graph layer: nodes and edges, no probability."""
