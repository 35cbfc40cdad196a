"""The old place of the loops in :mod:`quiltdp.inference.ancestry`."""

from quiltdp.inference.ancestry import Loop, Reordered, Step, loop_above, reorder

__all__ = ["Loop", "Reordered", "Step", "loop_above", "reorder"]
