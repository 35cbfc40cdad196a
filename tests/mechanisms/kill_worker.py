"""Processes that ask a shared holdout without end and write down every answer they receive.

Run as a program, it imports everything once and then forks one worker per line on its input (the file
to write to), telling its process id; so a killed worker is replaced in milliseconds.
"""

from __future__ import annotations

import os
import signal
import sys
import uuid
from pathlib import Path


def work(ledger: str, received: str, budget: int) -> None:
    from holdout_fakes import terms

    from quiltdp import ReusableHoldout

    train, fresh = {"luck": [0.9], "skill": [0.9]}, {"luck": [0.4], "skill": [0.9]}
    holdout = ReusableHoldout(
        train, fresh, terms(budget=budget, sensitivity=1.0, dp_epsilon=5e4), 0.2, ledger
    )
    descriptor = os.open(received, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    number = 0
    while True:
        number += 1
        key = uuid.uuid4().hex
        query = "skill" if number % 3 else "luck"
        answer = holdout.ask(query, key=key, label=key)
        value = "spent" if answer.value is None else answer.value.hex()
        os.write(descriptor, f"{key} {answer.source} {value}\n".encode())
        if number % 10 == 0:  # a retry must not be charged
            again = holdout.ask(query, key=key, label=key)
            if again.value != answer.value:
                os.write(descriptor, b"different answer to the same key\n")


def main(ledger: str, budget: int) -> None:
    import opendp.measurements  # noqa: F401 - the slow part, before the first fork

    import quiltdp.mechanisms.holdout  # noqa: F401

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the dead need no burial
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                work(ledger, line.strip(), budget)
            except BaseException as error:
                Path(line.strip() + ".failed").write_text(f"{type(error).__name__}: {error}")
            finally:
                os._exit(1)
        print(child, flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main(sys.argv[1], int(sys.argv[2]))
