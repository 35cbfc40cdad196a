"""The old name of :mod:`quiltdp.numbers`: add new roundings there."""

from quiltdp.numbers import *  # noqa: F403
from quiltdp.numbers import __all__ as __all__  # noqa: PLC0414
