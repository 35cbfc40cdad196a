"""The vector type under its old address; use :mod:`quiltdp.accountant.bounds`."""

from quiltdp.accountant.bounds import Vector

__all__ = ["Vector"]
