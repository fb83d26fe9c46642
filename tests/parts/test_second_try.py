"""A tier of the tests tries once more, alone, what failed: ``scripts/tier.py``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TIER = Path(__file__).parents[2] / "scripts" / "tier.py"
PARALLEL = ("-p", "xdist", "-n", "2")
NOTHING_ELSE = ("-p", "no:cacheprovider")
# Plugins that are not needed take a second to load; these tests may have workers of their own.
ENVIRONMENT = {name: value for name, value in os.environ.items() if "XDIST" not in name} | {
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"
}

EVERY_OTHER_TIME = """
from pathlib import Path

def test_of_a_busy_machine():
    first = not Path("tried").exists()
    Path("tried").touch()
    assert not first, "the server was not there yet"

def test_of_a_quiet_one():
    pass
"""
ENDS_ITS_PROCESS = EVERY_OTHER_TIME.replace("assert not first", "import os; first and os._exit(9)")
ALWAYS = """
import pytest

@pytest.mark.parametrize("number", range({}))
def test_that_fails(number):
    with open("tries", "a") as file:
        file.write("x")
    assert False, "broken"
"""


def run(folder: Path, source: str, *options: str) -> tuple[int, str, str]:
    """Return the exit code, what was printed, and the file of unstable tests."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_it.py").write_text(source)
    command = [sys.executable, str(TIER), "-q", *options, *NOTHING_ELSE]
    done = subprocess.run(
        command, check=False, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True
    )
    report = folder / "unstable.txt"
    return done.returncode, done.stdout, report.read_text() if report.exists() else ""


@pytest.mark.parametrize("options", [(), pytest.param(PARALLEL, marks=pytest.mark.long)])
def test_what_passes_the_second_time_is_reported_and_fails_nothing(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    """With its first message, in the output and in a file."""
    code, printed, report = run(tmp_path, EVERY_OTHER_TIME, *options)
    expected = (
        "unstable: test_it.py::test_of_a_busy_machine "
        "(AssertionError: the server was not there yet)\n"
    )
    assert (code, report) == (0, expected)
    assert printed.endswith(expected)


@pytest.mark.long
def test_a_test_that_ends_its_process_is_tried_again_too(tmp_path: Path) -> None:
    """What fails is then told by the worker's supervisor."""
    code, _, report = run(tmp_path, ENDS_ITS_PROCESS, *PARALLEL)
    assert code == 0
    assert "crashed" in report


@pytest.mark.parametrize("options", [(), pytest.param(PARALLEL, marks=pytest.mark.long)])
def test_what_fails_twice_fails(tmp_path: Path, options: tuple[str, ...]) -> None:
    """And was tried twice, not more often."""
    assert run(tmp_path, ALWAYS.format(1), *options)[::2] == (1, "")
    assert (tmp_path / "tries").read_text() == "xx"


def test_one_that_passes_does_not_hide_one_that_fails(tmp_path: Path) -> None:
    """Both are told."""
    code, _, report = run(tmp_path, EVERY_OTHER_TIME + ALWAYS.format(1))
    assert code == 1
    assert report.count("unstable: ") == 1


def test_what_is_skipped_the_second_time_has_not_passed(tmp_path: Path) -> None:
    """A second try that runs nothing says nothing."""
    skips = EVERY_OTHER_TIME.replace("    first =", "    import pytest\n    first =").replace(
        "    assert not first", "    first or pytest.skip()\n    assert not first"
    )
    assert run(tmp_path, skips)[::2] == (1, "")


@pytest.mark.long
def test_more_than_five_are_no_accident(tmp_path: Path) -> None:
    """None of six is tried again; of five all are."""
    assert run(tmp_path, ALWAYS.format(6))[0] == 1
    assert len((tmp_path / "tries").read_text()) == 6
    assert run(tmp_path, ALWAYS.format(5))[0] == 1
    assert len((tmp_path / "tries").read_text()) == 16


@pytest.mark.parametrize(("source", "code"), [("", 5), ("def test_(", 2)])
def test_an_end_that_is_no_failed_test_is_kept(tmp_path: Path, source: str, code: int) -> None:
    """Nothing collected, a module that cannot be read."""
    assert run(tmp_path, source)[::2] == (code, "")


@pytest.mark.long
def test_the_second_try_has_the_profile_of_the_first(tmp_path: Path) -> None:
    """And none of its workers."""
    profile = ("-p", "_hypothesis_pytestplugin", "--hypothesis-profile", "ci")
    source = EVERY_OTHER_TIME + (
        "\ndef test_profile(request):\n"
        "    assert request.config.getoption('--hypothesis-profile') == 'ci'\n"
        "    assert 'PYTEST_XDIST_WORKER' not in __import__('os').environ\n"
    )
    code, _, report = run(tmp_path, source, *PARALLEL, *profile)
    assert code == 0
    assert "test_profile" in report
