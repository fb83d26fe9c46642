"""The folder of an evaluation: one writer, appended lines, nothing lost when it is killed.

::

    plan.json           arms, tasks, caps, remarks on the tasks; in the end arms that took no part
    specs/RUN.json      what each run is
    runs/RUN/           result.json, and the traces and notebooks of its attempts (1/, 2/ …)
    results.jsonl       every result, one a line, in the order of arrival; the last of a run counts
    lock                held while an evaluation writes here
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any, Self

from kernel_agent.errors import InputError, TraceError
from kernel_agent.evaluation.runs import forget, kept_result
from kernel_agent.evaluation.specs import RunResult, RunSpec
from kernel_agent.safe import FILE_MODE, make_private, private_opener

RESULTS_NAME = "results.jsonl"
PLAN_NAME = "plan.json"


class Store:
    """The folder, locked for this process while the block lasts.

    Raises
    ------
    InputError
        The user's: another evaluation writes there, or the folder cannot be written.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).resolve()
        self._lock: IO[str] | None = None
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            for name in ("specs", "runs"):
                make_private(self.folder / name, exist_ok=True)
            lock = self.folder / "lock"
            self._lock = open(lock, "a+", encoding="utf-8", opener=private_opener)
            self._take_lock(self._lock)
            self._file = _open_results(self.folder / RESULTS_NAME)
        except OSError as error:
            self.close()
            raise InputError(
                f"cannot write to {self.folder}: {error.strerror}; name another folder with --out"
            ) from None
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the folder."""
        for file in (self._file, self._lock):
            if file is not None:
                file.close()

    def _take_lock(self, lock: IO[str]) -> None:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read(20).strip() or "unknown"
            raise InputError(
                f"another evaluation (process {holder}) is writing to {self.folder}: "
                "wait for it, or name another folder with --out"
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()

    def plan(self, plan: dict[str, Any], specs: Iterable[RunSpec]) -> None:
        """Write the planned runs; keep a spec that exists already."""
        _write_whole(self.folder / PLAN_NAME, json.dumps(plan, indent=1, ensure_ascii=False))
        for spec in specs:
            path = self.folder / "specs" / f"{spec.run_id}.json"
            if not path.exists():
                _write_whole(path, spec.model_dump_json())

    def append(self, result: RunResult) -> None:
        """Add a line and hand it to the operating system.

        Raises
        ------
        TraceError
            The disk is full or gone; what was written before is kept.
        """
        assert self._file is not None
        line = result.model_dump_json().encode("utf-8", "backslashreplace") + b"\n"
        try:
            self._file.write(line)
            self._file.flush()
        except OSError as error:
            raise TraceError(
                f"cannot write {self.folder / RESULTS_NAME}: {error.strerror}"
            ) from None

    def finished(
        self, specs: Iterable[RunSpec], *, repeat: Iterable[str] = ()
    ) -> dict[str, RunResult]:
        """Return the results that need no run any more.

        A worker may have kept a result that never reached the lines, because this side was killed
        first: it is added to them. Results with a status in ``repeat`` are set aside.
        """
        told, again = read_results(self.folder), set(repeat)
        found: dict[str, RunResult] = {}
        for spec in specs:
            result = told.get(spec.run_id)
            if result is None and (result := kept_result(self.folder, spec.run_id)):
                self.append(result)
            if result is None or not result.finished:
                continue
            if result.status in again:
                forget(self.folder, spec.run_id)
            else:
                found[spec.run_id] = result
        return found


def read_results(folder: str | Path) -> dict[str, RunResult]:
    """Return the last result of each run in a folder.

    Raises
    ------
    InputError
        There are none, or a line before the last is damaged.
    """
    path = Path(folder) / RESULTS_NAME
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    found: dict[str, RunResult] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            result = RunResult.model_validate_json(line)
        except ValueError:
            if number == len(lines):  # it was being written when the process was killed
                break
            raise InputError(f"{path}, line {number}: not a result") from None
        found[result.run_id] = result
    return found


def read_plan(folder: str | Path) -> dict[str, Any]:
    """Return the plan of a folder.

    Raises
    ------
    InputError
        The folder has no plan.
    """
    path = Path(folder) / PLAN_NAME
    try:
        plan: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{folder} holds no evaluation ({error})") from None
    return plan


def _open_results(path: Path) -> IO[bytes]:
    """Open the lines for appending; half a line at the end is what a killed process leaves."""
    file = open(path, "a+b", opener=private_opener)  # noqa: SIM115 - Path has no opener
    file.seek(0)
    whole = file.read()
    if whole and not whole.endswith(b"\n"):
        file.truncate(whole.rfind(b"\n") + 1)
    file.seek(0, os.SEEK_END)
    return file


def _write_whole(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}.draft")
    draft.touch(mode=FILE_MODE)
    draft.write_text(text, encoding="utf-8", errors="backslashreplace")
    draft.replace(path)
