"""The old place of :mod:`quiltdp.inference.trees`."""

from quiltdp.inference.trees import JunctionTree, junction_tree, plan_junction_tree

__all__ = ["JunctionTree", "junction_tree", "plan_junction_tree"]
