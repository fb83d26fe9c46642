"""A PostgreSQL cluster of a test's own: made, started and removed with it, never as root."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PASSWORD = "s3cret-of-the-analyst"
BOSS = "s3cret-of-the-boss"


def programs() -> Path | None:
    """Return where initdb and postgres are, if they are."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if found:
        return found[-1].parent
    path = shutil.which("initdb")
    return Path(path).parent if path and shutil.which("postgres") else None


@contextmanager
def cluster() -> Iterator[str]:
    """Yield ``127.0.0.1:PORT`` of a server with a superuser ``boss`` and nobody else."""
    where = programs()
    assert where is not None
    # PostgreSQL refuses to run as root.
    user = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.getuid() == 0 else {}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    if user:
        shutil.chown(folder, "postgres", "postgres")
    secret = folder / "password"
    secret.write_text(BOSS)
    environment = {"PATH": f"{where}:/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": str(folder)}
    try:
        subprocess.run(
            [where / "initdb", "-D", folder / "data", "-A", "scram-sha-256", "-U", "boss",
             f"--pwfile={secret}", "--no-sync", "-E", "UTF8"],
            check=True, capture_output=True, env=environment, cwd=folder, **user,
        )  # fmt: skip
        server = subprocess.Popen(
            [where / "postgres", "-D", folder / "data", "-k", folder, "-p", str(port),
             "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment, cwd=folder,
            **user,
        )  # fmt: skip
        try:
            _wait(port)
            yield f"127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(30)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _wait(port: int) -> None:
    import psycopg

    until = time.monotonic() + 60
    while True:
        try:
            psycopg.connect(
                host="127.0.0.1", port=port, user="boss", password=BOSS, dbname="postgres"
            ).close()
        except psycopg.OperationalError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)
        else:
            return
