"""``--format auto`` against endpoints that take to formats in every way in which endpoints do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from servers.openai_server import OpenAIServer, Writer

ROOT = Path(__file__).parents[2]
CELLS = ["x = 6", "final_answer(x * 7)"]
LARGE, SMALL = "big-model", "small-7b"


def test_the_command_chooses_and_remembers_without_any_secret(tmp_path):
    """The address stands in the memory without the password that was in it."""
    writer = Writer(cells=[*CELLS], tools="refused")
    with OpenAIServer(writer) as server:
        url = server.url.replace("http://", "http://user:pass-word@")
        dropped = ("OPENAI_", "KERNEL_AGENT_")
        environment = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
        environment |= {
            "PYTHONPATH": str(ROOT), "OPENAI_API_KEY": "secret-value",
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
        }  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-m", "kernel_agent", "run", "x", "--base-url", url, "--model",
             LARGE, "--out", "out", "--json", "--format", "auto"],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["answer"] == 42
    memory = (tmp_path / "cache" / "kernel-agent" / "formats.json").read_text()
    assert '"envelope"' in memory
    assert "secret-value" not in memory
    assert "pass-word" not in memory
