"""The old place of :mod:`quiltdp.graph.components`."""

from quiltdp.graph.components import ComponentClass, component_classes

__all__ = ["ComponentClass", "component_classes"]
