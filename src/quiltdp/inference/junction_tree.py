"""The old address of :mod:`quiltdp.inference.trees`; it goes with the next version."""

from quiltdp.moved import names_from

__getattr__ = names_from(__name__, "quiltdp.inference.trees")
