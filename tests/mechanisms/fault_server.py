"""A process with the fault shim loaded: it forks a child for every order, which asks one question.

Orders come on the input as JSON, one per line; the answer is one line: what the child could tell before
it ended, and how many calls it made.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np

ROWS = 100
TRAIN, FRESH = np.zeros((ROWS, 1)), np.ones((ROWS, 1))
BUDGET = 40


def holdout(path: Path, anchor: str | None) -> Any:
    from holdout_fakes import terms

    from quiltdp import ReusableHoldout

    calibration = terms(budget=BUDGET, sensitivity=1 / ROWS, dp_epsilon=4000.0)
    return ReusableHoldout(TRAIN, FRESH, calibration, 0.2, path, anchor=anchor, second=True)


class Query:
    """0.1 on the training data; as much more on the holdout as it is told, and it says when it was read."""

    def __init__(self, gap: float, said: int) -> None:
        self.gap, self.said = gap, said

    def __call__(self, table: np.ndarray) -> np.ndarray:
        if table.any():  # the holdout
            os.write(self.said, b"read\n")
        return 0.1 + self.gap * table[:, 0]


def child(order: dict[str, Any], said: int) -> None:
    from quiltdp.errors import QuiltdpError

    library = ctypes.CDLL(None)
    made = holdout(Path(order["path"]), order["anchor"])
    query = Query(order["gap"], said)
    library.fault_arm(order["mode"], order["call"])
    try:
        answer = made.ask(query, label="the one")
        told = f"told {answer.source} {answer.value.hex()}"
    except QuiltdpError as error:
        told = f"refused {str(error).replace(order['path'], '')}"
    calls = library.fault_seen()
    library.fault_arm(0, 0)
    os.write(said, f"{told}\ncalls {calls}\n".encode())


def main() -> None:
    from quiltdp.mechanisms import SecureNoise

    SecureNoise().laplace([0], 2.0**20)  # loads and compiles the slow parts before the first fork
    holdout(Path(":memory:"), None)
    for line in sys.stdin:
        order = json.loads(line)
        for source, target in order["copies"]:
            shutil.copyfile(source, target)
        read, write = os.pipe()
        process = os.fork()
        if process == 0:
            try:
                child(order, write)
            except BaseException as error:
                os.write(write, f"broke {type(error).__name__}: {error}\n".encode())
            finally:
                os._exit(0)
        os.close(write)
        with os.fdopen(read) as pipe:
            said = pipe.read().splitlines()
        os.waitpid(process, 0)
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
