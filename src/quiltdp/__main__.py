"""``python -m quiltdp``: the command line."""

from __future__ import annotations

from quiltdp.cli import main

if __name__ == "__main__":
    main()
