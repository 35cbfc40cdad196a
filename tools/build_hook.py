"""The wheel's build: compile the kernels where there is a C compiler, else make a wheel without them."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import platform_tags

PLACE = "src/quiltdp/compiled"


class CompiledKernels(BuildHookInterface):
    """Put the shared library into the wheel, which is then one for this kind of machine, for any Python."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; the library is ignored by git, so that it has to be named."""
        library = run_path(str(Path(self.root) / PLACE / "build.py"))["build"]()
        if library is None:
            return
        build_data["artifacts"].append(f"{PLACE}/{library.name}")
        build_data["pure_python"] = False
        plain = (tag for tag in platform_tags() if "linux_" not in tag or tag.startswith("linux_"))
        build_data["tag"] = f"py3-none-{next(plain)}"
