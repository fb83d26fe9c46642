"""A new setting is one field of the table: everything that reads settings has it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FIELD = """
    patience: int = setting(
        3,
        "how often it is tried again",
        shared=True,
        option=Option("N", dict.fromkeys(("run", "pipeline", "eval"), "Try again so often.")),
        magic=Magic("N", "how often it is tried again", "--patience 5"),
        trait="How often it is tried again.",
    )

"""
PROBE = """
import json, os, sys
from pathlib import Path
import typer.main
from kernel_agent import Config
from kernel_agent.cli.app import app
from kernel_agent.config import SETTINGS, load_config
from kernel_agent.errors import ConfigError
from kernel_agent_extension.options import HELP, read_request, traits

def refused(work):
    try:
        work()
    except ConfigError as error:
        return type(error).__name__

def typed(name):
    command = typer.main.get_command(app).commands[name]
    return command.make_context(name, ["x", "--patience", "7"]).params["patience"]

Path("own.toml").write_text("patience = 4")
print(json.dumps({
    "default": Config().patience,
    "file": load_config({"KERNEL_AGENT_CONFIG": "own.toml"}).patience,
    "environment": load_config({"KERNEL_AGENT_PATIENCE": "5"}).patience,
    "wrong": refused(lambda: load_config({"KERNEL_AGENT_PATIENCE": "much"})),
    "commands": [typed(name) for name in ("run", "pipeline", "eval")],
    "magic": dict(read_request("--patience 6 Go").settings),
    "listed": "--patience N" in HELP,
    "trait": traits()["patience"].help,
    "trace": Config().public["patience"],
    "shared": SETTINGS["patience"].shared,
}))
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the sources whose table has one field more."""
    for name in ("kernel_agent", "extension"):
        left_out = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=left_out)
    table = tmp_path / "kernel_agent" / "config" / "table.py"
    before, mark, after = table.read_text().partition("    def merged(")
    table.write_text(f"{before.rstrip()}{FIELD}{mark}{after}")
    return tmp_path


def test_one_field_is_in_file_environment_commands_magic_and_trace(
    copy: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    work = tmp_path_factory.mktemp("work")
    environment = {
        **{name: value for name, value in os.environ.items() if "KERNEL_AGENT" not in name},
        "PYTHONPATH": f"{copy}{os.pathsep}{copy / 'extension'}",
        "HOME": str(work),
    }
    done = subprocess.run(
        [sys.executable, "-c", PROBE], capture_output=True, text=True, check=False,
        cwd=work, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "default": 3, "file": 4, "environment": 5, "wrong": "ConfigError",
        "commands": [7, 7, 7], "magic": {"patience": 6},
        "listed": True, "trait": "How often it is tried again.", "trace": 3, "shared": True,
    }  # fmt: skip
