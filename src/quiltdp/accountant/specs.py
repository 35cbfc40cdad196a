"""The old address of :mod:`quiltdp.accountant.mechanisms`; it goes with the next version."""

from quiltdp.moved import names_from

__getattr__ = names_from(__name__, "quiltdp.accountant.mechanisms", {"MechanismSpec": "Mechanism"})
