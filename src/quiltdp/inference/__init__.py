"""The inference layer: factor tables, max-influence, swing and spreads; no ε and no noise."""

from quiltdp.moved import old_addresses

old_addresses(__name__)
