"""``--format auto`` against endpoints that take to formats in every way in which endpoints do."""

from __future__ import annotations

import json
from pathlib import Path

from servers.openai_server import OpenAIServer, Writer
from support.command import run_command

ROOT = Path(__file__).parents[2]
CELLS = ["x = 6", "final_answer(x * 7)"]
LARGE, SMALL = "big-model", "small-7b"


def test_the_command_chooses_and_remembers_without_any_secret(tmp_path):
    """The address stands in the memory without the password that was in it."""
    writer = Writer(cells=[*CELLS], tools="refused")
    with OpenAIServer(writer) as server:
        url = server.url.replace("http://", "http://user:pass-word@")
        done = run_command(
            tmp_path, "run", "x", "--base-url", url, "--model", LARGE, "--out", "out", "--json",
            "--format", "auto",
            OPENAI_API_KEY="secret-value", XDG_CACHE_HOME=str(tmp_path / "cache"),
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["answer"] == 42
    memory = (tmp_path / "cache" / "kernel-agent" / "formats.json").read_text()
    assert '"envelope"' in memory
    assert "secret-value" not in memory
    assert "pass-word" not in memory
