"""The accountant layer: leakage bounds, calibration, composition."""

from quiltdp.moved import old_addresses

old_addresses(__name__)
