"""Compile the kernels: ``python -m quiltdp.compiled.build``, which the wheel's build does as well.

Every ``.c`` file here goes into one shared library of plain C, which needs neither Python's headers nor any
library of its own.  Without a compiler nothing is made and nothing is missing: each kernel has a twin in
numpy that gives the same bytes.
"""

from __future__ import annotations

import hashlib
import os
import sys
from contextlib import suppress
from pathlib import Path

HERE = Path(__file__).resolve().parent
LIBRARY = HERE / "_kernels.so"

FLAGS = ("-std=c99", "-O2", "-fPIC", "-shared", "-ffp-contract=off")
"""No fused multiply-add, no reassociation, no instructions of one machine: the same bytes everywhere."""


def sources() -> list[Path]:
    """Return the C files, in the order of their names."""
    return sorted(HERE.glob("*.c"))


def digest() -> str:
    """Return what tells these sources and flags from others."""
    found = hashlib.sha256(" ".join(FLAGS).encode())
    for path in sorted([*sources(), *HERE.glob("*.h")]):
        found.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()


def seal(content: bytes) -> bytes:
    """Return what stands at the end of a library, behind what the system reads: a digest of the rest."""
    return hashlib.sha256(content).hexdigest().encode()


def whole() -> bool:
    """Return whether the library is the file that was made, to its last byte.

    The system maps a library without looking: one that was cut short, by a full disk or a broken copy, ends
    the process when a page of it is missing.
    """
    content = LIBRARY.read_bytes()
    end = len(content) - len(seal(b""))
    return content[end:] == seal(content[:end])


def build() -> Path | None:
    """Make the library and return its place; ``None``, with a line on stderr, where that is not possible."""
    import shlex
    import subprocess  # not needed to load what was built, which every command does
    import tempfile

    compiler = shlex.split(os.environ.get("CC") or "cc")
    try:
        with tempfile.TemporaryDirectory(dir=HERE) as folder:
            made = Path(folder) / LIBRARY.name
            define = f'-DQD_SOURCES="{digest()}"'
            command = [*compiler, *FLAGS, define, "-o", str(made), *map(str, sources())]
            subprocess.run(command, check=True, capture_output=True, text=True)
            with made.open("rb+") as file:
                file.write(seal(file.read()))
                file.flush()
                os.fsync(file.fileno())
            os.replace(made, LIBRARY)
        return LIBRARY
    except subprocess.CalledProcessError as error:
        why = f"{compiler[0]} failed: {error.stderr.strip()}"
    except OSError as error:  # no compiler, or no place to write to
        why = f"{error.filename}: {error.strerror}"
    with suppress(OSError):  # one of other sources is not used anyway
        LIBRARY.unlink()
    print(f"quiltdp without compiled kernels: {why}", file=sys.stderr)
    return None


if __name__ == "__main__":
    build()
