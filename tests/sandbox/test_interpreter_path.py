"""An interpreter may be named by a path with dots, as ``../.venv/bin/python`` from a subfolder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.levels import need

from kernel_agent.kernel import KernelSession
from kernel_agent.sandbox.environment import without_dots

LEVELS = (
    "none",
    "bubblewrap",
    *(
        pytest.param(level, marks=pytest.mark.long)
        for level in ("namespaces", "landlock", "container", "gvisor")
    ),
)


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest) -> str:
    need(request.param)
    return str(request.param)


async def test_a_kernel_of_an_interpreter_named_with_dots_starts(
    tmp_path: Path, level: str
) -> None:
    """It is that environment's, with its packages, and the self-test holds."""
    for name in ("beside", "work"):
        (tmp_path / name).mkdir()
    dotted = f"{tmp_path}/beside/{os.path.relpath(sys.executable, tmp_path / 'beside')}"
    async with KernelSession(cwd=tmp_path / "work", sandbox=level, python=dotted) as kernel:
        result = await kernel.execute("import sys, pandas; print(sys.prefix)")
    assert result.outputs[0]["text"] == f"{sys.prefix}\n"


def test_the_command_works_where_its_interpreter_is_named_with_dots(tmp_path: Path) -> None:
    """By a relative path Python keeps the dots: a question, the doctor, a notebook run again."""
    python = os.path.relpath(sys.executable, tmp_path)
    assert python.startswith("..")

    def command(*words: str) -> str:
        done = subprocess.run(
            [python, "-m", "kernel_agent", *words],
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    (tmp_path / "table.csv").write_text("city,sold\nBonn,2\nKiel,3\n")
    said = command("run", "--model", "offline", "total sold", "--data", "table.csv",
                   "--out", "made", "--json")  # fmt: skip
    notebook = json.loads(said.splitlines()[-1])["notebook"]
    assert "5" in said
    command("verify", notebook)
    assert "started, and computed" in command("doctor")


def test_a_script_works_where_its_interpreter_is_named_with_dots(tmp_path: Path) -> None:
    (tmp_path / "ask.py").write_text(
        "from kernel_agent import Session\n"
        "with Session(model='offline') as session:\n"
        "    print(session.execute_sync('print(6 * 7)').outputs[0]['text'])\n"
    )
    python = os.path.relpath(sys.executable, tmp_path)
    done = subprocess.run(
        [python, "ask.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "42", done.stderr


def test_dots_are_followed_as_the_system_follows_them(tmp_path: Path) -> None:
    """Behind a link ``..`` is the folder above its target; later links, as in a venv, stay."""
    environment = tmp_path / "far" / "venv"
    for folder in (environment / "bin", tmp_path / "far" / "docs", tmp_path / "near"):
        folder.mkdir(parents=True)
    (environment / "bin" / "python").symlink_to(sys.executable)
    (tmp_path / "near" / "link").symlink_to(tmp_path / "far" / "docs")
    (tmp_path / "far" / "chosen").symlink_to(environment)
    for named, meant in {
        "far/docs/../venv/bin/python": "far/venv/bin/python",
        "near/link/../venv/bin/python": "far/venv/bin/python",
        "near/link/../chosen/bin/python": "far/chosen/bin/python",
        "far/chosen/bin/python": "far/chosen/bin/python",
    }.items():
        assert (tmp_path / named).exists()
        assert without_dots(tmp_path / named) == tmp_path.resolve() / meant
