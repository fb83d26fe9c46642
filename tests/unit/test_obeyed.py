"""Names that programs obey where they are started: what cells make of them is seen and named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kernel_agent.safe import obeyed
from kernel_agent.safe.obeyed import UNSEEN, Watch, obeyed_in, obeyed_line, who_obeys


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
        ("my.git", "git"),
        (".venv", "Python"),
        ("ansible.cfg", "Ansible"),
        (".latexmkrc", "latexmk"),
        (".ghci", "other interpreters"),
        (".iex.exs", "other interpreters"),
        (".pryrc", "other interpreters"),
        (".octaverc", "other interpreters"),
        ("startup.m", "other interpreters"),
        (".cargo", "build tools"),
        (".mvn", "build tools"),
        ("build.gradle", "build tools"),
        ("Vagrantfile", "build tools"),
        ("flake.nix", "build tools"),
        (".bazelrc", "build tools"),
        ("jest.config.js", "JavaScript's tools"),
        ("eslint.config.mjs", "JavaScript's tools"),
        (".pnp.cjs", "JavaScript's tools"),
        (".husky", "JavaScript's tools"),
        (".streamlit", "Streamlit"),
        ("app.js", ""),
        ("config.json", ""),
        ("model.config.json", ""),
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
    (tmp_path / "csv.pyc").touch()
    (tmp_path / "json.py").touch()
    (tmp_path / "sales.csv").touch()
    assert watch.news() == (".env", "csv.pyc", "json.py", "old/.git", "plots/kernel-agent.toml")
    assert watch.news() == ()


@pytest.mark.parametrize(
    "path", ["pandas.py", "numpy.py", "sub/scipy.py", "json/__init__.py", "pandas/__init__.py"]
)
def test_a_file_that_is_imported_instead_of_a_library_is_named(tmp_path: Path, path: str) -> None:
    """A notebook that is opened in the folder would import it."""
    watch = Watch(tmp_path)
    (tmp_path / path).parent.mkdir(exist_ok=True)
    (tmp_path / path).touch()
    (tmp_path / "own").mkdir()
    for harmless in ("own/__init__.py", "helpers.py", "pandas.csv", "__init__.py"):
        (tmp_path / harmless).touch()
    assert watch.news() == (path,)
    assert "(Python)" in obeyed_line([path])


def test_nothing_at_the_top_hides_behind_many_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(obeyed, "MAX_LOOKED_AT", 200)
    watch = Watch(tmp_path)
    for n in range(250):
        (tmp_path / f"a{n}").touch()
    (tmp_path / "kernel-agent.toml").touch()
    assert watch.news() == ("kernel-agent.toml", UNSEEN)


WITHIN = (
    "lib/.git/config", "a/b/.git/config", "lib/.git/hooks/post-checkout",
    "lib/.git/info/attributes", "lib/.git/modules/deep/logs/config", "x.git/config",
    "x.git/hooks/update", "app/.vscode/tasks.json", ".vscode/tasks.json",
    ".github/workflows/ci.yml", "app/.venv/bin/python", "a/b/c/Makefile",
    ".venv/lib/python3.11/site-packages/x.pth", "web/node_modules/.bin/tsc", "a/.IDEA/x/y/run.xml",
)  # fmt: skip


@pytest.mark.parametrize("change", ["edited", "made", "moved"])
@pytest.mark.parametrize("path", WITHIN)
def test_what_is_obeyed_within_a_folder_of_such_a_name_is_named(
    tmp_path: Path, path: str, change: str
) -> None:
    """At any depth, edited in place too, which changes nothing of the folder itself."""
    file = tmp_path / path
    file.parent.mkdir(parents=True)
    (tmp_path / "new").write_text("old")
    if change == "edited":
        file.write_text("old")
    watch = Watch(tmp_path)
    assert watch.news() == ()
    if change == "moved":
        (tmp_path / "new").rename(file)
    else:
        file.write_text("new")
    assert watch.news() == (path,)
    assert watch.news() == ()


@pytest.mark.parametrize(
    "path",
    ["lib/.git/index", "lib/.git/objects/ab/cd", "lib/.git/refs/heads/config", "lib/.git/HEAD",
     "lib/.git/logs/hooks/x", "lib/.git/hooks/update.sample", "web/node_modules/left/index.js",
     ".venv/lib/python3.11/site-packages/pytest/conftest.py", "lib/data/config"],
)  # fmt: skip
def test_what_a_program_only_keeps_there_is_no_news(tmp_path: Path, path: str) -> None:
    """A commit changes a hundred files of a repository and nothing that is obeyed."""
    file = tmp_path / path
    file.parent.mkdir(parents=True)
    watch = Watch(tmp_path)
    file.write_text("new")
    assert watch.news() == ()


def test_a_new_folder_of_such_a_name_is_named_once_and_not_all_that_is_in_it(
    tmp_path: Path,
) -> None:
    """Also one that is put in the place of another."""
    (tmp_path / "lib" / ".git" / "hooks").mkdir(parents=True)
    (tmp_path / "lib" / ".git" / "config").write_text("old")
    watch = Watch(tmp_path)
    (tmp_path / "lib").rename(tmp_path / "moved")
    (tmp_path / "lib" / ".git").mkdir(parents=True)
    (tmp_path / "lib" / ".git" / "config").write_text("evil")
    assert watch.news() == ("lib/.git", "moved/.git")


def test_a_folder_that_is_closed_or_too_deep_is_named(tmp_path: Path) -> None:
    """What cannot be looked into is not taken for harmless."""
    watch = Watch(tmp_path)
    deep = tmp_path.joinpath(*["d"] * 45, ".git")
    deep.mkdir(parents=True)
    (deep / "config").touch()
    (news,) = watch.news()
    assert news == "/".join(["d"] * 41) + f"/{UNSEEN}"
    assert "nobody could look into it" in obeyed_line((news,))
    assert watch.news() == ()


def test_where_the_walk_ends_early_the_line_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Something may be there that is not named."""
    monkeypatch.setattr(obeyed, "MAX_LOOKED_AT", 200)
    watch = Watch(tmp_path)
    (tmp_path / "many").mkdir()
    for n in range(250):
        (tmp_path / "many" / f"a{n}").touch()
    (tmp_path / "z" / ".git").mkdir(parents=True)
    (tmp_path / "z" / ".git" / "config").touch()
    assert watch.news() == (UNSEEN,)
    line = obeyed_line((UNSEEN,))
    assert line.startswith("The folder holds more than was looked at")
    assert obeyed_line((".env", UNSEEN)).endswith(line)


def test_only_what_can_be_held_is_protected_at_any_depth_and_no_links(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / ".env").symlink_to("elsewhere")
    (tmp_path / "json.py").touch()  # a module of the user's own may be changed
    (tmp_path / "a" / "b" / ".git" / "hooks").mkdir(parents=True)
    (tmp_path / ".git" / "conftest.py").touch()
    (tmp_path / "a" / "link").symlink_to("b")
    found = [str(path.relative_to(tmp_path)) for path in obeyed_in(tmp_path)]
    assert sorted(found) == [".git", "a/b/.git", "pyproject.toml"]
    assert obeyed_in(tmp_path / "missing") == ()


def test_what_lies_at_the_top_is_protected_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is mounted anew for each kernel, so there is a bound."""
    monkeypatch.setattr(obeyed, "MAX_HELD", 2)
    for name in ("a", "b", "c"):
        (tmp_path / name / ".vscode").mkdir(parents=True)
    (tmp_path / "z.code-workspace").touch()
    assert len(obeyed_in(tmp_path)) == 2
    assert obeyed_in(tmp_path)[0].name == "z.code-workspace"


def test_the_line_is_one_line_whatever_the_names_are() -> None:
    assert obeyed_line(()) == ""
    line = obeyed_line(("a\nb/.git", *[f"{n}/.env" for n in range(20)]))
    assert "\n" not in line
    assert line.startswith("Code in a cell made")
    assert "a b/.git (git), 0/.env (programs that load it)" in line
    assert "11 more" in line
    assert obeyed_line(5) == ""  # type: ignore[arg-type]  # from a forged trace
