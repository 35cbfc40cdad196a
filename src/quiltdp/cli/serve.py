"""``quiltdp serve``: the studies of a database, over HTTP."""

from __future__ import annotations

from pathlib import Path

from quiltdp.errors import InvalidArgument, need

__all__ = ["serve"]


def serve(
    *,
    database: str,
    anchor: list[Path] | None = None,
    host: str = "127.0.0.1",
    port: int = 8000,
    slot: float = 0.25,
    rate: int = 120,
) -> None:
    """Serve the studies of a database, in one process, until it is interrupted.

    Members ask with their tokens; a study is made with 'quiltdp study create'.  TLS is a reverse proxy's:
    keep --host as it is, and let the proxy speak to it.  The log is JSON, a line for every request.

    Reading
    -------
    database : URL
        sqlite:///FILE for one server; postgresql://HOST/NAME for several (its password: PGPASSWORD or
        ~/.pgpass).

    Output
    ------
    anchor : FILE
        The anchor of a study that was made with one; repeated, for several.
    host : ADDRESS
        Where to listen.
    port : N >= 1
        Where to listen.
    slot : SECONDS >= 0.01
        Answers leave at multiples of this after their question came, so that time tells nothing.
    rate : N >= 1
        How many requests a minute one token may send.

    Examples
    --------
    $ quiltdp serve --database sqlite:///study.db
    """
    import logging

    uvicorn = need("uvicorn", "serving", "server")
    for module in ("fastapi", "sqlalchemy"):
        need(module, "serving", "server")
    from quiltdp.server.app import JsonLines, Limits, create_app

    if not port < 65536:
        raise InvalidArgument(f"--port {port}: ports go up to 65535")
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    app = create_app(database, anchor or (), slot=slot, limits=Limits(rate=rate))
    uvicorn.run(app, host=host, port=port, log_config=None, access_log=False, server_header=False)
