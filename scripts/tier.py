"""Run tests with pytest; what fails is tried once more, alone.

    python scripts/tier.py PYTEST-ARGUMENTS

A machine that is busy can fail one test in thousands. So up to five failed tests are run again, one
after the other, without workers. What then passes is reported as unstable, in the output and in
``unstable.txt``, and does not fail the run; what fails twice does. More than five, or an end that
is no failed test (nothing collected, a wrong option), is not tried again.
"""

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

MOST = 5
SLOWEST = ("--durations=25", "--durations-min=4")  # what a gate's minutes are spent on
REPORT = Path("unstable.txt")
# What a second try takes over of the arguments.
KEPT = ("--hypothesis-profile", "-p")


class Failures:
    """What failed, as pytest reports it, also from its workers: test -> the line that says why."""

    def __init__(self) -> None:
        self.seen: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._note(report)

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            why = crash.message if crash else str(report.longrepr)
            self.seen.setdefault(report.nodeid, next(iter(why.strip().splitlines()), ""))


def main(arguments: list[str]) -> int:
    sys.path[0] = str(Path.cwd())  # as `python -m pytest` has it
    failures = Failures()
    code = int(pytest.main([*arguments, *SLOWEST], plugins=[failures]))
    if code != pytest.ExitCode.TESTS_FAILED or not failures.seen:
        return code
    if len(failures.seen) > MOST:
        print(f"{len(failures.seen)} tests failed, more than {MOST}: none is tried again")
        return code
    print(f"== {len(failures.seen)} failed: tried once more, alone", flush=True)
    passed = [test for test in failures.seen if passes(test, kept(arguments))]
    report([f"{test} ({failures.seen[test]})" for test in passed])
    return 0 if len(passed) == len(failures.seen) else code


def passes(test: str, options: list[str]) -> bool:
    """Run a test once more and print what pytest says. One that is skipped has not passed."""
    command = [sys.executable, "-m", "pytest", "-q", *options, test]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    print(done.stdout, end="", flush=True)
    return done.returncode == 0 and " passed" in done.stdout.splitlines()[-1]


def kept(arguments: list[str]) -> list[str]:
    """Return the options of the first try that hold for the second."""
    return [word for pair in pairwise(arguments) if pair[0] in KEPT for word in pair]


def report(unstable: list[str]) -> None:
    lines = [f"unstable: {line}\n" for line in unstable]
    print(*lines, sep="", end="", flush=True)
    if lines:
        with REPORT.open("a") as file:
            file.writelines(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
