"""Names that programs obey where they are started: what cells make of them is seen and named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kernel_agent.safe import obeyed
from kernel_agent.safe.obeyed import Watch, at_top, obeyed_line, who_obeys


@pytest.mark.parametrize(
    ("name", "by"),
    [
        ("kernel-agent.toml", "kernel-agent"),
        ("Kernel-Agent.TOML", "kernel-agent"),
        ("jupyter_server_config.py", "Jupyter"),
        (".env", "programs that load it"),
        (".env.local", "programs that load it"),
        ("conftest.py", "pytest"),
        (".git", "git"),
        ("HEAD", "git"),
        (".vscode", "editors"),
        ("CLAUDE.md", "coding agents"),
        ("GNUmakefile", "make and the like"),
        ("evil.pth", "Python"),
        ("sales.csv", ""),
        ("run.ipynb", ""),
        ("trace.jsonl", ""),
        ("environment.csv", ""),
        ("my.git", ""),
    ],
)
def test_a_name_is_told_with_who_obeys_it(name: str, by: str) -> None:
    assert who_obeys(name) == by


def test_what_is_made_or_changed_is_news_once_and_a_time_set_back_hides_nothing(
    tmp_path: Path,
) -> None:
    (tmp_path / ".env").write_text("A=1")
    (tmp_path / "old").mkdir()
    watch = Watch(tmp_path)
    assert watch.news() == ()
    before = (tmp_path / ".env").stat().st_mtime_ns
    (tmp_path / ".env").write_text("A=2")
    os.utime(tmp_path / ".env", ns=(before, before))
    (tmp_path / "plots").mkdir()
    (tmp_path / "plots" / "kernel-agent.toml").symlink_to("nowhere")
    (tmp_path / "old" / ".git").mkdir()
    (tmp_path / "json.py").touch()
    (tmp_path / "sales.csv").touch()
    assert watch.news() == (".env", "json.py", "old/.git", "plots/kernel-agent.toml")
    assert watch.news() == ()


def test_nothing_at_the_top_hides_behind_many_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(obeyed, "MAX_LOOKED_AT", 200)
    watch = Watch(tmp_path)
    for n in range(250):
        (tmp_path / f"a{n}").touch()
    (tmp_path / "kernel-agent.toml").touch()
    assert watch.news() == ("kernel-agent.toml",)


def test_only_what_can_be_held_is_protected_no_links_and_nothing_deeper(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / ".env").symlink_to("elsewhere")
    (tmp_path / "json.py").touch()  # a module of the user's own may be changed
    (tmp_path / "sub" / ".git").mkdir(parents=True)
    assert {path.name for path in at_top(tmp_path)} == {".git", "pyproject.toml"}
    assert at_top(tmp_path / "missing") == ()


def test_the_line_is_one_line_whatever_the_names_are() -> None:
    assert obeyed_line(()) == ""
    line = obeyed_line(("a\nb/.git", *[f"{n}/.env" for n in range(20)]))
    assert "\n" not in line
    assert line.startswith("Code in a cell made")
    assert "a b/.git (git), 0/.env (programs that load it)" in line
    assert "11 more" in line
    assert obeyed_line(5) == ""  # type: ignore[arg-type]  # from a forged trace
