"""For every place: a child asks one question and kills itself before the statement of that number."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path


def main(url: str, study: str, member: str, places: list[int]) -> None:
    from server_fakes import LUCK, stopped_at

    from quiltdp.server import database as db
    from quiltdp.server.asking import Study
    from quiltdp.server.studies import members_of

    for place in places:
        child = os.fork()
        if child == 0:
            engine = db.opened(url)
            with engine.connect() as connection:
                (who,) = [m for m in members_of(connection, study) if m.id == member]
            server = Study(engine, study)
            with stopped_at(engine, place, lambda: os.kill(os.getpid(), signal.SIGKILL)):
                answer = server.ask(who, LUCK, f"{place}")
            os.write(1, f"{place} {answer.value}\n".encode())
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main(**json.loads(sys.argv[1]))
