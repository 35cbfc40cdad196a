"""The inference layer: factor tables, max-influence, swing and spreads; no ε and no noise."""
