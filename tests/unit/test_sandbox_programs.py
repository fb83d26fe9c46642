"""Programs are believed to make a sandbox when nobody but root could have put them there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kernel_agent.errors import SandboxError
from kernel_agent.sandbox import bubblewrap, chooser, programs


def a_program(folder: Path, name: str = "bwrap") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\nexit 0\n")
    path.chmod(0o755)
    return path


def test_the_systems_programs_are_found_without_a_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PATH", raising=False)
    assert programs.find("sh") in ("/usr/bin/sh", "/bin/sh")


def test_a_program_that_others_could_have_put_there_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither first in PATH, nor where there is no other; the reason names the place."""
    open_to_all = tmp_path / "open"
    planted = a_program(open_to_all, "sh")
    only = a_program(open_to_all, "no-such-program")
    open_to_all.chmod(0o777)
    monkeypatch.setenv("PATH", f"{open_to_all}:/usr/bin:/bin")
    assert programs.find("sh") not in (None, str(planted))
    assert programs.find("no-such-program") is None
    assert str(only) in programs.missing("no-such-program")
    assert programs.VARIABLE in programs.missing("no-such-program")


@pytest.mark.parametrize("path", ["", ".", "bin", "relative/bin:"])
def test_the_working_folder_is_never_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    for folder in (tmp_path, tmp_path / "bin", tmp_path / "relative" / "bin"):
        a_program(folder, "no-such-program")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", path)
    monkeypatch.setenv(programs.VARIABLE, path)
    assert programs.find("no-such-program") is None
    assert programs.missing("no-such-program") == "no-such-program is not installed"


def test_a_link_to_what_others_may_write_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = a_program(tmp_path / "real", "no-such-program")
    real.chmod(0o777)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "no-such-program").symlink_to(real)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert programs.find("no-such-program") is None


def test_a_directory_that_the_user_names_is_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for a conda environment, whose programs are the user's own."""
    mine = a_program(tmp_path / "conda", "bwrap")
    (tmp_path / "conda").chmod(0o777)
    monkeypatch.setenv(programs.VARIABLE, str(tmp_path / "conda"))
    assert programs.find("bwrap") == str(mine)


def test_the_level_says_why_a_program_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "open"
    a_program(folder, "bwrap")
    folder.chmod(0o777)
    monkeypatch.setattr(programs, "SYSTEM", ())
    monkeypatch.setenv("PATH", str(folder))
    tried = bubblewrap.probe()
    assert not tried.works
    assert str(folder) in tried.reason


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_program_of_another_user_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = a_program(tmp_path / "theirs", "no-such-program")
    monkeypatch.setenv("PATH", str(path.parent))
    os.chown(path, 12345, 12345)
    assert programs.find("no-such-program") is None


def test_auto_does_not_go_down_because_a_machine_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A try that does not end in time says nothing of the level: the next one is not taken."""
    monkeypatch.setattr(bubblewrap, "PROBE_TIMEOUT_S", 0.0)
    chooser.probe.cache_clear()
    if not programs.find("bwrap"):
        pytest.skip("no bwrap")
    with pytest.raises(SandboxError, match="bubblewrap works here cannot be told now"):
        chooser.choose("auto")
    monkeypatch.undo()
    assert chooser.probe("bubblewrap").reason != "bwrap did not end within 0 s"


def test_auto_is_not_led_by_a_program_in_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chooser.probe.cache_clear()
    before = chooser.choose("auto").name
    chooser.probe.cache_clear()
    a_program(tmp_path, "bwrap").write_text("#!/bin/sh\nexit 1\n")
    tmp_path.chmod(0o777)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert chooser.choose("auto").name == before
