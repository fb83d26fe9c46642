"""Play the attacks against one level, as the user who runs this: ``python -m attacks.play LEVEL``.

Prints one JSON object: how the level started, and a result for each attack. Never plays at level
``none`` as root: there, these are real attacks.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import secrets
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from attacks.alone import meet
from attacks.browse import browse
from attacks.score import verdict
from attacks.stage import KEY_VARIABLE, NotHere, Stage
from attacks.usage import used
from attacks.words import CATALOGUE, Attack, Report, Result, load
from kernel_agent.errors import KernelAgentError
from kernel_agent.kernel import Access, KernelSession
from kernel_agent.records.cell import CellResult
from kernel_agent.tools.broker import Broker
from kernel_agent.tools.definition import tool

HERE = Path(__file__).parent
PRELUDE = (HERE / "cells" / "prelude.py").read_text()
MARK = "\nREPORT:"
LIMITS = {
    "processes": 200, "memory_mb": 1024, "file_mb": 64, "disk_mb": 160, "open_files": 256,
}  # fmt: skip
"""What a kernel under attack may use: little, so that going over it is cheap."""
MEASURED = {**LIMITS, "host_memory_mb": 1200, "kernel_memory_mb": 1024, "files": 100_000}
TOLD = ("standstill_ms", "host_memory_mb")  # of the host, for every attack
TICK_S = 0.005
CHECK_S = 12.0  # a session that does not answer a cell within this has been harmed


class Played:
    """One level under attack: its stage, its kernel, and its neighbour.

    Parameters
    ----------
    level
        The sandbox level.
    stage
        The canaries.
    """

    def __init__(self, level: str, stage: Stage) -> None:
        self.level = level
        self.stage = stage
        self.kernel: KernelSession | None = None
        stage.limits = dict(MEASURED)
        stage.next_kernel = lambda: self._seen_by_next  # type: ignore[attr-defined]
        self._seen_by_next = ""
        self._stale = False  # files that it must not see were replaced below a running kernel
        offered = self._make_tool("echo")
        self._make_tool("forbidden")  # exists on the host, is not offered
        self._broker = Broker([offered])
        self._broker_specs = [offered.spec]

    def _make_tool(self, name: str) -> Any:
        def called(value: str) -> str:
            """Note that it was called."""
            self.stage.tool_calls.append((name, value))
            return value

        called.__name__ = name
        return tool(called)

    async def start(self) -> None:
        """Start the kernel, lend the canaries to its user, and start the neighbour."""
        stage = self.stage
        self.kernel = await self._start_kernel(
            stage.workspace,
            protected=[stage.workspace / "data"],
            hidden=[stage.files["trace"], stage.files["notebook"]],
        )
        pids = stage.kernel_pids()
        uids = [u for pid in pids if (u := _uid(pid)) is not None]
        stage.give_to(uids[-1] if os.getuid() == 0 and uids else os.getuid())
        assert stage.victim
        folder = stage.root / "neighbour"
        folder.mkdir(exist_ok=True)
        neighbour = await self._start_kernel(folder)
        (folder / "secret.txt").write_text(stage.secret("neighbour_file"))
        stage.neighbour = neighbour
        stage.neighbour_directory = neighbour._directory  # type: ignore[attr-defined]
        assert neighbour._manager is not None
        key = dict(neighbour._manager.get_connection_info())["key"]
        stage.secret("neighbour_key", key.decode() if isinstance(key, bytes) else str(key))

    async def _start_kernel(self, cwd: Path, **paths: list[Path]) -> KernelSession:
        kernel = KernelSession(
            cwd=cwd,
            sandbox=self.level,
            access=Access(limits=LIMITS, **paths),
            tools=self._broker_specs,
        )
        await kernel.start(timeout_s=240)
        return kernel

    async def close(self) -> None:
        """End both kernels."""
        for kernel in (self.kernel, self.stage.neighbour):
            if kernel is not None:
                await kernel.close()

    async def one(self, attack: Attack) -> Result:
        """Play one attack and return the verdict."""
        began = time.monotonic()
        stage = self.stage
        stage.token = secrets.token_hex(8)
        stage.signals, stage.tool_calls, stage.peak = 0, [], {}
        self._seen_by_next = ""
        try:
            further = attack.before(stage)
        except NotHere as missing:
            return Result(attack=attack.name, verdict="not run", seen=str(missing))
        if attack.on_host is not None:
            report = await meet(attack, stage)
        else:
            await self._fresh(attack)
            stage.before = stage.look()
            with _measuring(stage, self._own_folders):
                async with _ticking(stage):
                    report = await self._run(attack, further)
                    await self._check(attack)
        try:
            seen = attack.effect(stage, report)
        finally:
            self._stale = stage.replant() or self._stale
        measured = {name: stage.peak[name] for name in TOLD if name in stage.peak}
        return verdict(attack, report, seen, round(time.monotonic() - began, 2), measured)

    def _own_folders(self) -> list[Path]:
        """Return where the kernel may write on the disk: its workspace and private directory."""
        private = self.kernel._directory if self.kernel is not None else None
        return [self.stage.workspace, *([private] if private is not None else [])]

    async def _fresh(self, attack: Attack) -> None:
        """See to it that a working kernel is there that knows the prelude."""
        kernel = self.kernel
        assert kernel is not None
        if attack.own_kernel or self._stale or not kernel.alive:
            self._stale = False
            await kernel.restart()
            self.stage.remember()  # as root gVisor's level gives the folder to each kernel's user
        self.stage.clear_workspace()
        result = await kernel.execute(PRELUDE, timeout_s=60)
        if result.status != "ok":
            raise RuntimeError(f"the prelude failed: {result.error}")

    async def _run(self, attack: Attack, further: dict[str, object]) -> Report:
        stage = self.stage
        canaries = {
            **stage.addresses,
            **further,
            "token": stage.token,
            "home": str(stage.home),
            "root": str(stage.root),
            "files": {name: str(path) for name, path in stage.files.items()},
            "host_pid": os.getpid(),
            "host_group": os.getpgid(0),
        }
        code = f"{attack.code}\nattempt({attack.name}, {json.dumps(canaries)!r})"
        assert self.kernel is not None
        self._broker.fresh_kernel()  # an attack chooses the ids of its requests
        try:
            result = await asyncio.wait_for(
                self.kernel.execute(
                    code, timeout_s=attack.timeout_s, on_request=self._broker.answer
                ),
                attack.timeout_s + 20,
            )
        except TimeoutError:
            await self.kernel.kill()
            return Report(ended="timeout", text="")
        return await self._told(result)

    async def _told(self, result: CellResult) -> Report:
        """Return the attack's report; ask for it again when it drowned in what was printed."""
        report = _report(result)
        if report.ended == "silent" and self.kernel is not None and self.kernel.alive:
            again = await self.kernel.execute("tidy(); tell()", timeout_s=CHECK_S)
            report = _report(again)
        return report

    async def _check(self, attack: Attack) -> None:
        """Ask for another cell, of the same kernel or, when that has ended, of a new one."""
        stage, kernel = self.stage, self.kernel
        assert kernel is not None
        stage.session_answers = False  # type: ignore[attr-defined]
        stage.next_answer = ""  # type: ignore[attr-defined]
        with contextlib.suppress(KernelAgentError, TimeoutError):
            if attack.category == "persistence":
                await kernel.restart()
            if not kernel.alive:
                await kernel.restart()
            code = "import os; print('six', 2 * 3, os.environ.get('PLANTED', ''))"
            result = await asyncio.wait_for(kernel.execute(code, timeout_s=CHECK_S), CHECK_S + 10)
            if result.status == "dead":  # it took the kernel with it: the next one must do
                await kernel.restart()
                result = await kernel.execute(code, timeout_s=CHECK_S)
            text = _text(result)
            stage.session_answers = "six 6" in text  # type: ignore[attr-defined]
            stage.next_answer = _answer(result)  # type: ignore[attr-defined]
            self._seen_by_next = text
        if attack.name == "daemon":
            await kernel.close()
            await asyncio.sleep(0.2)  # a moment: in which the daemon could still act
        if not stage.session_answers or attack.name == "daemon":  # type: ignore[attr-defined]
            await kernel.restart()


def _text(result: CellResult) -> str:
    return "".join(o.get("text", "") for o in result.outputs if o["output_type"] == "stream")


def _answer(result: CellResult) -> str:
    """Return what would be taken as the cell's own value."""
    shown = [o for o in result.outputs if o["output_type"] == "execute_result"]
    return json.dumps(shown, default=str)


def _report(result: CellResult) -> Report:
    text = _text(result)
    if MARK in text:
        with contextlib.suppress(ValueError):
            line = text.rpartition(MARK)[2].splitlines()[0]
            return Report(**json.loads(line), outputs=tuple(result.outputs))
    if result.status in ("dead", "timeout", "interrupted"):
        return Report(ended="timeout" if result.status != "dead" else "dead")
    said = f"{result.status} {result.error}" if result.error else result.status
    return Report(ended="silent", text=f"no report: {said}"[:300])


@contextlib.contextmanager
def _measuring(stage: Stage, folders: Callable[[], list[Path]]) -> Any:
    """Measure what the sandboxes use, ten times a second, and keep the highest values."""
    stop = threading.Event()
    disk_before = used(folders(), stage.kernel_pids()).megabytes
    own = _resident(os.getpid())
    base, shared = len(_tasks(stage.kernel_pids())), _meminfo("Shmem")
    kernel = _meminfo("SUnreclaim")

    def keep(name: str, value: int) -> None:
        stage.peak[name] = max(stage.peak.get(name, 0), value)

    def measure() -> None:
        while True:
            spent = time.thread_time()
            pids = stage.kernel_pids()
            keep("processes", len(_tasks(pids)) - base)
            keep("memory_mb", sum(_resident(pid) for pid in pids) + _meminfo("Shmem") - shared)
            keep("kernel_memory_mb", _meminfo("SUnreclaim") - kernel)
            keep("host_memory_mb", _resident(os.getpid()) - own)
            disk = used(folders(), pids)
            keep("files", disk.files)
            keep("disk_mb", disk.megabytes - disk_before)
            keep("file_mb", disk.largest_mb)
            if stop.is_set():
                # Now without regard to the cells: what was closed to the host is opened.
                keep("disk_mb", used(folders(), pids, closed=True).megabytes - disk_before)
                return
            # gVisor's processes have thousands of descriptors: the host's loop is to turn, too.
            stop.wait(max(0.1, 3 * (time.thread_time() - spent)))

    thread = threading.Thread(target=measure)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextlib.asynccontextmanager
async def _ticking(stage: Stage) -> AsyncIterator[None]:
    """Measure for how long this loop, which is the host's, stands still at most."""

    async def tick() -> None:
        before = time.monotonic()
        while True:
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            late = round((now - before - TICK_S) * 1000)
            stage.peak["standstill_ms"] = max(stage.peak.get("standstill_ms", 0), late)
            before = now

    ticking = asyncio.create_task(tick())
    try:
        yield
    finally:
        await asyncio.sleep(2 * TICK_S)  # so that a standstill at the very end is seen, too
        ticking.cancel()


def _tasks(pids: Sequence[int]) -> list[str]:
    found: list[str] = []
    for pid in pids:
        with contextlib.suppress(OSError):
            found += os.listdir(f"/proc/{pid}/task")
    return found


def _resident(pid: int) -> int:
    """Return a process's own resident memory in MB (without what it shares as files)."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) // 1024
    return 0


def _meminfo(name: str) -> int:
    """Return MB of the machine's: Shmem is tmpfs and memfd, SUnreclaim what Linux needs itself."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) // 1024
    return 0


def _uid(pid: int) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("Uid:"):
                return int(line.split()[1])
    return None


async def play(level: str, names: Sequence[str] = ()) -> dict[str, Any]:
    """Play all attacks, or those named, against a level.

    Returns
    -------
    dict
        ``level``, ``uid``, ``started`` (or ``reason``), ``kernel_uid``, ``seconds``, ``results``.
    """
    if level == "none" and os.getuid() == 0:
        raise SystemExit("attacks are not played as root without a sandbox")
    load()
    os.environ["PLAYED_LEVEL"] = level  # for whole sessions that the host meets attacks in
    chosen = [a for a in CATALOGUE.values() if not names or a.name in names]
    chosen.sort(key=lambda a: a.own_kernel)
    began = time.monotonic()
    told: dict[str, Any] = {"level": level, "uid": os.getuid(), "started": False}
    results: list[Result] = []
    with Stage() as stage:
        played = Played(level, stage)
        try:
            await played.start()
        except Exception as error:
            await played.close()
            reason = " ".join(str(error).split())[:300]
            missing = [_not_run(a, "the level did not start") for a in chosen]
            return {**told, "reason": reason, "results": [asdict(r) for r in missing]}
        told |= {"started": True, "kernel_uid": stage.uid}
        try:
            for attack in chosen:
                results.append(await _guarded(played, attack))
                _say(results[-1])
            if not names or any(name.startswith("browser") for name in names):
                results += await browse(played)
        finally:
            await played.close()
    told["seconds"] = round(time.monotonic() - began, 1)
    return {**told, "results": [asdict(result) for result in results]}


async def _guarded(played: Played, attack: Attack) -> Result:
    """Play an attack; whatever breaks in the suite itself is 'not run', never 'stopped'."""
    try:
        return await asyncio.wait_for(played.one(attack), 120)
    except Exception as error:
        with contextlib.suppress(Exception):
            assert played.kernel is not None
            await played.kernel.restart()
        return _not_run(attack, f"{type(error).__name__}: {error}"[:200])


def _not_run(attack: Attack, why: str) -> Result:
    return Result(attack=attack.name, verdict="not run", seen=why)


def _say(result: Result) -> None:
    print(
        f"{result.verdict:12} {result.attack:36} {result.seconds:5} {result.seen[:150]}",
        file=sys.stderr,
    )


def main() -> None:
    """Read the arguments; start anew with a key in the environment, as a host has one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("level")
    parser.add_argument("names", nargs="*", help="attacks to play; all by default")
    arguments = parser.parse_args()
    if KEY_VARIABLE not in os.environ:
        os.environ[KEY_VARIABLE] = f"CANARY-environment-{secrets.token_hex(8)}"
        os.execv(sys.executable, [sys.executable, "-m", "attacks.play", *sys.argv[1:]])
    if os.getpgid(0) != os.getpid():
        os.setpgid(0, 0)  # an attack signals the group: it is to be this process's alone
    told = asyncio.run(play(arguments.level, arguments.names))
    json.dump(told, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
