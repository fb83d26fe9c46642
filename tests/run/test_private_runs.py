"""What a run leaves is the user's alone; and what cells make that programs obey is named."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from pathlib import Path

import pytest
from test_approval_terminal import COMMAND, environment

from kernel_agent import ScriptedModel, Session, export
from kernel_agent.notebook.exporter import write_page
from kernel_agent.records.store import read_trace
from kernel_agent.records.trace import RunStop

LEVEL = os.environ.get("KERNEL_AGENT_TEST_SANDBOX", "auto")


def modes(folder: Path) -> dict[str, int]:
    return {
        str(path.relative_to(folder)): stat.S_IMODE(path.lstat().st_mode)
        for path in sorted(folder.rglob("*"))
    }


def a_run(folder: Path, cell: str, **options: object) -> Session:
    reply = f"Next.\n```python\n{cell}\n```"
    (folder / "t.csv").write_text("a\n1\n")
    options = {"data": [folder / "t.csv"], **options}
    session = Session(model=ScriptedModel([reply]), sandbox=LEVEL, **options)  # type: ignore[arg-type]
    with session:
        session.last = session.run_sync("x")  # type: ignore[attr-defined]
    return session


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_folders_of_runs_are_0700_and_what_the_host_writes_there_0600(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, umask: int
) -> None:
    monkeypatch.chdir(tmp_path)
    before = os.umask(umask)
    try:
        session = a_run(tmp_path, "final_answer(open('data/t.csv').read())")
        assert session.last.status == "answered"  # type: ignore[attr-defined]
        write_page("<p>", session.out / "run.html")
        export(session.out, session.out / "again.ipynb")
        export(session.out, tmp_path / "elsewhere.ipynb")
    finally:
        os.umask(before)
    found = modes(session.out)
    ours = ("trace.jsonl", "run.ipynb", "run.html", "again.ipynb")
    assert {found[name] for name in ours} == {0o600}
    assert found["data"] == 0o700
    assert stat.S_IMODE(session.out.stat().st_mode) == 0o700
    assert stat.S_IMODE(session.out.parent.stat().st_mode) == 0o700
    assert modes(tmp_path)["elsewhere.ipynb"] == 0o666 & ~umask


def test_a_folder_that_was_there_keeps_its_mode(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    out.chmod(0o755)
    a_run(tmp_path, "final_answer(1)", out=out)
    assert stat.S_IMODE(out.stat().st_mode) == 0o755
    assert modes(out)["trace.jsonl"] == modes(out)["run.ipynb"] == 0o600


def test_what_cells_make_that_programs_obey_is_in_result_trace_and_words(tmp_path: Path) -> None:
    cell = "import os; os.mkdir('p'); open('p/kernel-agent.toml', 'w'); final_answer(1)"
    session = a_run(tmp_path, cell, out=tmp_path / "out")
    assert session.last.obeyed == ("p/kernel-agent.toml",)  # type: ignore[attr-defined]
    (stop,) = [r for r in read_trace(session.out) if isinstance(r, RunStop)]
    assert stop.obeyed == ("p/kernel-agent.toml",)
    shown = subprocess.run(
        [*COMMAND, "show", str(session.out)], capture_output=True, text=True, check=True,
        env=environment(),
    ).stdout  # fmt: skip
    assert "p/kernel-agent.toml (kernel-agent)" in " ".join(shown.split())


@pytest.mark.long
def test_the_command_names_it_on_each_of_its_ways(tmp_path: Path) -> None:
    reply = {"content": "Next.\n```python\nopen('.env', 'w'); final_answer(1)\n```"}
    (tmp_path / "s.jsonl").write_text(json.dumps(reply) + "\n")
    line = "Code in a cell made what programs obey"

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, "run", "x", "--model=scripted:s.jsonl", *more], cwd=tmp_path, text=True,
            capture_output=True, check=True, env=environment(),
        )  # fmt: skip

    assert line in run().stdout
    quiet = run("--quiet")
    assert quiet.stdout == "1\n"
    assert line in quiet.stderr
    assert json.loads(run("--json").stdout)["obeyed"] == [".env"]


def test_what_lay_in_a_folder_that_is_named_may_be_read_and_not_changed(tmp_path: Path) -> None:
    out = tmp_path / "project"
    (out / ".git").mkdir(parents=True)
    (out / ".git" / "config").write_text("[core]\n")
    (out / "pyproject.toml").write_text("[project]\n")
    cell = (
        "import os\nsaid = [open('pyproject.toml').read(), open('.git/config').read()]\n"
        "for work in (lambda: open('pyproject.toml', 'w'), lambda: open('.git/config', 'a'),\n"
        "             lambda: os.rename('.git', 'x'), lambda: os.unlink('pyproject.toml'),\n"
        "             lambda: open('.git/hook', 'w')):\n"
        "    try:\n        work(); said.append('done')\n"
        "    except OSError:\n        said.append('refused')\nfinal_answer(said)"
    )
    session = a_run(tmp_path, cell, out=out)
    if session.sandbox == "landlock":
        pytest.skip("this level cannot hold files in the folder")
    assert session.last.answer == ["[project]\n", "[core]\n", *["refused"] * 5]  # type: ignore[attr-defined]
    assert session.last.obeyed == ()  # type: ignore[attr-defined]


NAMES = (
    ".git/config", ".git/hooks/post-checkout", ".git/info/attributes", ".git/modules/a/config",
    "copy.git/config", ".gitattributes", ".gitmodules", ".hg/hgrc", ".vscode/tasks.json",
    ".vscode/settings.json", ".idea/workspace.xml", ".devcontainer/devcontainer.json", ".vimrc",
    ".exrc", ".editorconfig", ".dir-locals.el", "x.code-workspace", "Makefile", "justfile",
    "Dockerfile", "compose.yaml", "package.json", "node_modules/.bin/tsc", ".npmrc", ".Rprofile",
    ".gdbinit", "conftest.py", "pyproject.toml", "setup.py", "tox.ini", ".pre-commit-config.yaml",
    ".venv/bin/python", "evil.pth", "sitecustomize.py", ".env", ".envrc", "CLAUDE.md",
    ".claude/settings.json", ".github/workflows/ci.yml", "jupyter_server_config.py",
)  # fmt: skip
DEPTHS = ("", "a/", "a/b/", "a/b/c/")


def test_what_programs_obey_is_held_or_named_at_every_depth(tmp_path: Path) -> None:
    """Forty names, four depths: what was there is not changed, what is new is named."""
    assert len(NAMES) == 40
    out = tmp_path / "project"
    there = [f"{depth}{name}" for depth in DEPTHS for name in NAMES]
    for path in there:
        (out / path).parent.mkdir(parents=True, exist_ok=True)
        (out / path).write_text("old")
    new = [f"{depth}new/{name}" for depth in DEPTHS for name in NAMES]
    cell = (
        "from pathlib import Path\nchanged = []\n"
        f"for path in {there!r}:\n"
        "    try:\n        Path(path).write_text('evil'); changed.append(path)\n"
        "    except OSError:\n        pass\n"
        f"for path in {new!r}:\n"
        "    Path(path).parent.mkdir(parents=True, exist_ok=True); Path(path).write_text('evil')\n"
        "final_answer(changed)"
    )
    session = a_run(tmp_path, cell, out=out)
    changed, obeyed = session.last.answer, session.last.obeyed  # type: ignore[attr-defined]
    if session.sandbox != "landlock":  # it cannot hold files in the folder
        assert changed == []
    silent = [
        path
        for path in (*changed, *new)
        if not any(path == named or path.startswith(f"{named}/") for named in obeyed)
    ]
    assert silent == []
