"""Which settings files are read, and what is kept of the user's answers about files of others."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest

from kernel_agent.config import SETTINGS, Config, load_config
from kernel_agent.errors import ConfigError
from kernel_agent.safe.trust import answer_on, keep_answer, record_file

FILE = "kernel-agent.toml"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a home of its own elsewhere."""
    folder = tmp_path / "project"
    folder.mkdir()
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(folder)
    return folder


def own(project: Path, text: str) -> None:
    place = project.parent / "home" / ".config" / "kernel-agent"
    place.mkdir(parents=True, exist_ok=True)
    (place / "config.toml").write_text(text)


def test_every_setting_has_its_place_in_the_table() -> None:
    assert set(SETTINGS) == set(vars(Config()))


@pytest.mark.parametrize("kind", ["hostile", "no TOML", "a pipe", "a link to nothing", "a folder"])
def test_a_file_in_the_working_directory_is_named_in_one_line_and_not_read(
    project: Path, kind: str
) -> None:
    """Whatever it is; the user's own holds."""
    own(project, "max_steps = 5\n")
    place = project / FILE
    match kind:
        case "hostile":
            place.write_text('sandbox = "none"\napprove = "never"\nmax_steps = 3\n')
        case "no TOML":
            place.write_bytes(b"\xff")
        case "a pipe":
            os.mkfifo(place)
        case "a link to nothing":
            place.symlink_to("nowhere")
        case _:
            place.mkdir()
    told: list[str] = []
    assert load_config({}, tell=told.append) == Config(max_steps=5)
    (line,) = told
    assert line.startswith("kernel-agent.toml in the working directory is not read")
    assert "KERNEL_AGENT_CONFIG=kernel-agent.toml" in line


def test_a_file_that_is_named_may_set_everything_and_nothing_is_said(project: Path) -> None:
    own(project, "max_steps = 5\n")
    (project / FILE).write_text('sandbox = "none"\n')
    told: list[str] = []
    named = load_config({"KERNEL_AGENT_CONFIG": FILE}, tell=told.append)
    assert (named, told) == (Config(sandbox="none"), [])


@pytest.mark.parametrize("below", [".", "plots", "plots/deep"])
def test_no_file_is_read_from_a_runs_folder_whoever_names_it(project: Path, below: str) -> None:
    folder = project / below
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    (folder / FILE).write_text('format = "json"\n')
    (project / "trace.jsonl").symlink_to("nowhere")  # a link, too: it is the name that counts
    for name in (FILE, str(folder / FILE)):
        with pytest.raises(ConfigError, match=r"is not read: .*trace\.jsonl"):
            load_config({"KERNEL_AGENT_CONFIG": name})


@pytest.mark.parametrize(
    "text",
    [
        "a." * 31_000 + "a = 1",
        "[" + "a." * 31_000 + "a]",
        "1 . " * 16_000 + "1 = 1",
        '"a" . ' * 10_000 + "a = 1",
        'x = { "y" = 1, ' + "a." * 31_000 + "a = 1 }",
        'x = """\n# " \n"""""\n' + "a." * 31_000 + 'a = 1 # "',
        "x = '\"'\n" + "a." * 31_000 + "a = '\"'",
        "# it's\n" + "a." * 31_000 + "a = 1",
    ],
)
def test_a_key_of_thousands_of_dots_is_refused_before_it_is_read(project: Path, text: str) -> None:
    """The library would take 4 GB and most of a minute for these 64 kB."""
    (project / FILE).write_text(text)
    began = time.process_time()
    with pytest.raises(ConfigError, match="a key with more than 20 dots names no setting"):
        load_config({"KERNEL_AGENT_CONFIG": FILE})
    assert time.process_time() - began < 1


def test_dots_that_are_in_no_key_are_no_mistake(project: Path) -> None:
    prices = ", ".join(f"m{n} = {{ prompt = 0.2{n}, completion = 1.{n} }}" for n in range(30))
    own(project, f'# {"." * 90}\nmodel = "{"a." * 40}"\nprices = {{ {prices} }}\n')
    config = load_config({})
    assert config.model == "a." * 40
    assert len(config.prices) == 30


def test_without_an_absolute_home_no_file_is_taken_for_the_users_own(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", ".")
    monkeypatch.setenv("XDG_STATE_HOME", "state")
    (project / ".config" / "kernel-agent").mkdir(parents=True)
    (project / ".config" / "kernel-agent" / "config.toml").write_text('sandbox = "none"\n')
    assert load_config({}).sandbox == "auto"
    record = record_file()
    assert record is None or not record.is_relative_to(project)


def test_the_record_is_the_users_alone_and_counts_for_nothing_when_it_is_not(
    project: Path,
) -> None:
    assert keep_answer(project / FILE, b"a", allowed=True)
    record = record_file()
    assert record is not None
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    assert answer_on(project / FILE, b"a") is True
    record.chmod(0o622)
    assert answer_on(project / FILE, b"a") is None
    record.chmod(0o600)
    forged = record.with_name("forged")
    record.rename(forged)
    record.symlink_to(forged)
    assert answer_on(project / FILE, b"a") is None


@pytest.mark.parametrize("text", ["", "[]", "{", '{"x": 1}', "[" * 100_000, '"x"'])
def test_a_damaged_record_means_that_nobody_was_asked(project: Path, text: str) -> None:
    keep_answer(project / FILE, b"a", allowed=True)
    record = record_file()
    assert record is not None
    record.write_text(text)
    assert answer_on(project / FILE, b"a") is None
    assert keep_answer(project / FILE, b"a", allowed=False)
    assert answer_on(project / FILE, b"a") is False
