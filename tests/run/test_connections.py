"""What leaves the machine: the connections of a run's host process, and what its endpoint is sent.

A hook of Python's audit sees each address that the process connects to or asks the name server
for, before it does: a library that phones home would be seen as well.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from servers.openai_server import OpenAIServer, text
from support.command import environment

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys

seen = open(sys.argv.pop(1), "a", buffering=1)


def watch(event, arguments):
    if event in {"socket.connect", "socket.sendto"} and isinstance(arguments[1], tuple):
        print(*arguments[1][:2], file=seen)  # an address of the network; sockets in files are text
    elif event == "socket.getaddrinfo":
        print(arguments[0], arguments[1] or "", file=seen)


sys.addaudithook(watch)
from kernel_agent.__main__ import main

main()
"""
READ = "import pandas as pd\nsales = pd.read_csv('data/sales.csv')\nprint(len(sales))"
FIRST = text(f"Look.\n```python\n{READ}\n```")
SENT_ALONG = {
    "authorization", "user-agent", "host", "accept", "accept-encoding", "connection",
    "content-type", "content-length",
}  # fmt: skip
LAST = text("```python\nfinal_answer(len(sales))\n```")


def connections(folder: Path, *arguments: str, **changes: str) -> set[str]:
    """Run the command in a process of its own and return what it connected to, but for files."""
    shutil.copy(ROOT / "example_notebooks/data/sales.csv", folder)
    seen = folder / "seen.txt"
    seen.touch()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(seen), *arguments],
        cwd=folder,
        env=environment(HOME=str(folder), **changes),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return set(seen.read_text().splitlines())


@pytest.mark.parametrize(
    "commands", [("verify",), pytest.param(("show", "export"), marks=pytest.mark.long)]
)
def test_without_a_model_nothing_is_connected_to(tmp_path: Path, commands: tuple[str, ...]) -> None:
    asked = ("run", "Total amount per region", "--data", "sales.csv", "--out", "out")
    assert connections(tmp_path, *asked) == set()
    for command in commands:
        assert connections(tmp_path, command, "out") == set(), command


def test_a_run_connects_to_its_endpoint_and_to_nothing_else(tmp_path: Path) -> None:
    """And it is sent what the page says.

    A small table whole, of a long one the beginning only; no other header, no path of yours.
    """
    long = "region,amount\n" + "".join(f"north,{100_000 + n}\n" for n in range(1_000))
    (tmp_path / "long.csv").write_text(long)
    with OpenAIServer([FIRST, LAST]) as server:
        seen = connections(
            tmp_path, "run", "How many rows?", "--data", "sales.csv", "--data", "long.csv",
            "--base-url", server.url, "--model", "some-model", "--format", "fenced",
            OPENAI_API_KEY="x",
        )  # fmt: skip
        port = server.url.rpartition(":")[2].split("/")[0]
    assert seen == {f"127.0.0.1 {port}"}
    assert len(server.requests) == 2
    first = server.requests[0]
    sent = "".join(str(message["content"]) for message in first.body["messages"])
    lines = (tmp_path / "sales.csv").read_text().split()
    assert [line for line in lines if line not in sent] == []
    beginning = [n for n in range(1_000) if f"north,{100_000 + n}" in sent]
    assert beginning == [0, 1, 2, 3]  # and the header
    others = {name for name in first.headers if not name.startswith("x-stainless-")}
    assert others <= SENT_ALONG
    assert str(tmp_path) not in sent


@pytest.mark.long
def test_the_hook_sees_a_library_that_phones_home(tmp_path: Path) -> None:
    """The control: a tool's module connects elsewhere, and that is in the list."""
    (tmp_path / "home.py").write_text(
        "import contextlib, socket\nfrom kernel_agent import tool\n\n"
        "with contextlib.suppress(OSError):\n"
        "    socket.create_connection(('127.0.0.2', 9), timeout=1)\n\n\n"
        "@tool\ndef nothing() -> None:\n    'Do nothing.'\n"
    )
    seen = connections(
        tmp_path, "run", "Total amount per region", "--data", "sales.csv", "--tools", "home.py"
    )
    assert "127.0.0.2 9" in seen
