"""Servers that ask one study without end, many threads each, and write down every answer they receive.

Run as a program, it imports everything once and forks a server for every line on its input, a JSON object
``{"url", "study", "member", "received", "keys", "threads"}``, telling its process id.  A server that is
killed is started again with the keys that were not answered yet.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path


def serve(url: str, study: str, member: str, received: str, keys: list[str], threads: int) -> None:
    from server_fakes import LUCK, SKILL

    from quiltdp.errors import BudgetSpent, Refused
    from quiltdp.server import database as db
    from quiltdp.server.asking import Conflict, Study
    from quiltdp.server.store import translated
    from quiltdp.server.studies import members_of

    engine = db.opened(url)
    while True:
        try:
            with translated(study), engine.connect() as connection:
                (who,) = [m for m in members_of(connection, study) if m.id == member]
            server = Study(engine, study)
            break
        except Refused:
            time.sleep(0.05)
    waiting, lock = [*keys], threading.Lock()
    descriptor = os.open(received, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)

    def said(key: str, *words: object) -> None:
        os.write(descriptor, (" ".join([key, *map(str, words)]) + "\n").encode())

    def client() -> None:
        while True:
            with lock:
                if not waiting:
                    return
                key = waiting.pop()
            question = SKILL if int(key) % 5 == 0 else LUCK
            for _ in range(200):
                try:
                    receipt = server.ask(who, question, key)
                    said(key, receipt.source, receipt.value.hex(), receipt.entry)
                except Conflict:
                    said(key, "lost")
                except BudgetSpent:
                    said(key, "spent")
                except Refused:
                    time.sleep(0.01)
                    continue
                break

    clients = [threading.Thread(target=client) for _ in range(threads)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join()


def main() -> None:
    import opendp.measurements  # noqa: F401 - the slow part, before the first fork
    import server_fakes  # noqa: F401

    import quiltdp.server.asking  # noqa: F401

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the dead need no burial
    for line in sys.stdin:
        job = json.loads(line)
        child = os.fork()
        if child == 0:
            try:
                serve(**job)
            except BaseException as error:
                Path(job["received"] + ".failed").write_text(f"{type(error).__name__}: {error}")
            finally:
                os._exit(0)
        print(child, flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
