"""The old address of :mod:`quiltdp.graph.components`; it goes with the next version."""

from quiltdp.moved import names_from

__getattr__ = names_from(__name__, "quiltdp.graph.components")
