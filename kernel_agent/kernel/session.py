"""One kernel from start to end: the process, its private directory, and cells run in it.

The process is started through jupyter_client's ``AsyncKernelManager`` and the ``kernel-agent``
provisioner (where the sandbox is), and driven by :mod:`kernel_agent.kernel.client`. State lives
on between cells. A cell that takes too long is interrupted and the namespace kept; one that does
not let itself be interrupted costs the kernel. A kernel that ends is noticed within a fraction
of a second and reported as that.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager

from kernel_agent.errors import KernelDied, KernelStartError
from kernel_agent.kernel.client import Cell, KernelClient, OnOutput, OnRequest, over
from kernel_agent.records import CellError, CellResult, CellStatus

LAUNCHER = Path(__file__).resolve().parent.parent / "inside" / "launch.py"
POLL_S = 0.1  # how often the process is looked at; a dead kernel is noticed within this
START_TIMEOUT_S = 60.0
GREETING_S = 0.5  # a kernel that has not greeted by then is asked, again and again
INTERRUPT_GRACE_S = 3.0  # from the interrupt to the kill
SHUTDOWN_GRACE_S = 0.5
SOCKET_PATH_MAX = 107  # bytes of a unix socket's path, from the kernel's sockaddr_un


class _OneSpec(KernelSpecManager):
    """Answers jupyter_client's question for a kernelspec with the one that we start."""

    spec: KernelSpec

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:  # noqa: ARG002 - there is only one
        return self.spec


class KernelSession:
    """A kernel, as an async context manager.

    Parameters
    ----------
    cwd
        The directory in which cells run.
    sandbox
        The level of protection; see :mod:`kernel_agent.sandbox`.
    tools
        Descriptions of the host tools that cells can call (:func:`kernel_agent.tools.specs`).
    python
        The interpreter that cells run in; the host's own by default. It needs ipykernel.
    head_chars
        Characters of one stream of one cell that are sent; the rest stays in the kernel.

    Examples
    --------
    >>> async with KernelSession(cwd=Path(".")) as kernel:
    ...     result = await kernel.execute("1 + 1")
    """

    def __init__(
        self,
        *,
        cwd: Path,
        sandbox: str = "auto",
        tools: Sequence[dict[str, Any]] = (),
        python: str = sys.executable,
        head_chars: int = 1_000_000,
    ) -> None:
        self.cwd = cwd
        self.sandbox = sandbox
        self._python = python
        self._settings = {"tools": list(tools), "head_chars": head_chars}
        self._directory: Path | None = None
        self._manager: AsyncKernelManager | None = None
        self._client: KernelClient | None = None
        self._died: asyncio.Future[None] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._running: Cell | None = None
        self._interrupted = False
        self._exit_code: int | None = None
        self.steps = 0
        """The number of the latest cell."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def alive(self) -> bool:
        """Whether the kernel's process runs."""
        return self._client is not None and self._died is not None and not self._died.done()

    @property
    def pid(self) -> int | None:
        """The process id of the kernel (of its outermost process, in a sandbox)."""
        provisioner = self._manager.provisioner if self._manager else None
        return getattr(provisioner, "pid", None)

    # --- life ------------------------------------------------------------------------------

    async def start(self, *, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start the process and wait until nothing that it puts out can be missed.

        Raises
        ------
        KernelStartError
            When the process ends or stays silent; the message ends with its log's last lines.
        """
        self._died = asyncio.get_running_loop().create_future()
        self._exit_code = None
        self._directory = directory = _private_directory()
        log = directory / "log"
        try:
            (directory / "agent.json").write_text(json.dumps(self._settings))
            self._manager = manager = self._make_manager(directory)
            await manager.start_kernel(cwd=str(self.cwd), env=dict(os.environ), log_path=str(log))
            self._client = KernelClient(dict(manager.get_connection_info()))
            self._client.start()
            self._watch = asyncio.create_task(self._watch_process())
            await self._wait_until_ready(timeout_s)
        except BaseException as error:
            reason = _last_lines(log)
            await self.close()
            if isinstance(error, (OSError, KernelDied, TimeoutError)):
                message = f"the kernel did not start: {str(error) or 'no sign of life'}{reason}"
                raise KernelStartError(message) from error
            raise

    def _make_manager(self, directory: Path) -> AsyncKernelManager:
        spec = KernelSpec(
            argv=[
                self._python,
                "-X",
                "frozen_modules=on",
                str(LAUNCHER),
                "-f",
                "{connection_file}",
            ],
            display_name="kernel-agent",
            language="python",
            interrupt_mode="message",
            metadata={"kernel_provisioner": {"provisioner_name": "kernel-agent", "config": {}}},
        )
        specs = _OneSpec()
        specs.spec = spec
        return AsyncKernelManager(
            kernel_name="kernel-agent",
            kernel_spec_manager=specs,
            transport="ipc",
            connection_file=str(directory / "k.json"),
            ip=str(directory / "s"),
        )

    async def _wait_until_ready(self, timeout_s: float) -> None:
        assert self._client is not None
        assert self._died is not None
        deadline = time.monotonic() + timeout_s
        await _first_of(self._client.welcome, self._died, seconds=min(GREETING_S, timeout_s))
        while not self._client.welcome.done() and time.monotonic() < deadline:
            if self._died.done():
                break
            self._client.ask_for_a_sign()
            await _first_of(self._client.welcome, self._died, seconds=GREETING_S)
        if self._died.done():
            raise KernelDied(self.epitaph)
        if not self._client.welcome.done():
            raise TimeoutError(f"nothing heard of it for {timeout_s:g} s")

    async def _watch_process(self) -> None:
        assert self._manager is not None
        provisioner = self._manager.provisioner
        assert provisioner is not None
        while (code := await provisioner.poll()) is None:  # noqa: ASYNC110 - a process sets no event
            await asyncio.sleep(POLL_S)
        self._exit_code = code
        self._mark_dead()

    def _mark_dead(self) -> None:
        if self._died is not None and not self._died.done():
            self._died.set_result(None)

    @property
    def epitaph(self) -> str:
        """How the kernel's process ended, for a person."""
        code = self._exit_code
        if code is None:
            return "it was ended because it did not answer"
        if code >= 0:
            return f"its process ended with exit code {code}"
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        hint = ", perhaps because memory ran out" if -code == signal.SIGKILL else ""
        return f"its process was ended by {name}{hint}"

    async def restart(self) -> None:
        """Replace the kernel by a fresh one; every variable is gone."""
        await self.close()
        await self.start()

    async def close(self) -> None:
        """End the kernel and remove its directory. Safe to call twice, and half-way in a start."""
        manager, client, watch = self._manager, self._client, self._watch
        self._manager = self._client = self._watch = None
        if client is not None and self._died is not None and not self._died.done():
            client.shutdown()
            await _first_of(self._died, seconds=SHUTDOWN_GRACE_S)
        if watch is not None:
            watch.cancel()
        if client is not None:
            await client.close()
        if manager is not None and manager.provisioner is not None:
            await manager.provisioner.kill()
            await manager.provisioner.wait()
            await manager.cleanup_resources()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    # --- cells -----------------------------------------------------------------------------

    async def execute(
        self,
        code: str,
        *,
        step: int | None = None,
        timeout_s: float | None = None,
        waited: Callable[[], float] = lambda: 0.0,
        on_output: OnOutput | None = None,
        on_request: OnRequest | None = None,
    ) -> CellResult:
        """Run one cell.

        Parameters
        ----------
        code
            The source; magics are allowed.
        step
            The number under which ``outputs[step]`` keeps the text; counted on by default.
        timeout_s
            Seconds until the cell is interrupted; None for no limit.
        waited
            Seconds so far in which a person was waited for; they do not count.
        on_output, on_request
            See :meth:`KernelClient.execute`.

        Returns
        -------
        CellResult
            Also for a cell that failed, was interrupted, or took the kernel with it: this method
            raises only when there was no kernel to begin with.

        Raises
        ------
        KernelDied
            The kernel had ended before.
        """
        client, died = self._client, self._died
        if client is None or died is None or died.done():
            raise KernelDied(f"the kernel is gone: {self.epitaph}")
        self.steps = step if step is not None else self.steps + 1
        self._interrupted = False
        started, waited_before = time.monotonic(), waited()

        def seconds() -> float:
            return time.monotonic() - started - (waited() - waited_before)

        def seconds_left() -> float | None:
            return None if timeout_s is None else timeout_s - seconds()

        cell = client.execute(code, step=self.steps, on_output=on_output, on_request=on_request)
        self._running = cell
        try:
            end = await over(cell, died=died, seconds_left=seconds_left)
            if end == "timeout":
                await self._interrupt_or_kill(cell)
        except asyncio.CancelledError:
            # Whoever cancels wants the cell to end, too; the kernel stays usable.
            await asyncio.shield(self._interrupt_or_kill(cell))
            raise
        finally:
            self._running = None
            client.forget(cell)
        return self._result(cell, timed_out=end == "timeout", seconds=seconds())

    async def interrupt(self) -> None:
        """End the running cell with KeyboardInterrupt; it ends as ``interrupted``.

        A cell that does not end within the grace period costs the kernel.
        """
        cell = self._running
        if cell is not None:
            self._interrupted = True
            await self._interrupt_or_kill(cell)

    async def _interrupt_or_kill(self, cell: Cell) -> None:
        """Interrupt; insist a few times (code may swallow it once); then kill."""
        for _ in range(3):
            if self._client is None or not self.alive or cell.over.done():
                return
            assert self._died is not None
            self._client.interrupt()
            await _first_of(cell.over, self._died, seconds=INTERRUPT_GRACE_S / 3)
        if cell.over.done() or not self.alive:
            return
        await self.kill()

    async def kill(self) -> None:
        """End the kernel's process group at once; the running cell ends as ``dead``."""
        if self._manager is not None and self._manager.provisioner is not None:
            assert self._died is not None
            await self._manager.provisioner.kill()
            await _first_of(self._died, seconds=SHUTDOWN_GRACE_S)
            self._mark_dead()

    def _result(self, cell: Cell, *, timed_out: bool, seconds: float) -> CellResult:
        outputs = tuple(cell.collector.outputs())
        error, status = cell.error, "ok"
        if not self.alive and not cell.over.done():
            status = "dead"
            reason = (
                "it did not let itself be interrupted; " if timed_out or self._interrupted else ""
            )
            error = CellError(ename="KernelDied", evalue=f"{reason}{self.epitaph}")
        elif timed_out:
            status = "timeout"
        elif self._interrupted:
            status = "interrupted"
        elif error is not None:
            status = "error"
        kinds: dict[str, CellStatus] = {
            "ok": "ok", "error": "error", "timeout": "timeout",
            "interrupted": "interrupted", "dead": "dead",
        }  # fmt: skip
        return CellResult(
            status=kinds[status],
            outputs=outputs,
            error=error,
            seconds=seconds,
            answer=cell.collector.answer,
            changes=cell.changes,
        )


async def _first_of(*futures: asyncio.Future[None], seconds: float) -> None:
    """Wait until one of these is done, for at most so long."""
    await asyncio.wait(futures, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)


def _private_directory() -> Path:
    """Make the directory of the sockets: 0700, and short enough for a socket's path."""
    made = tempfile.mkdtemp(prefix="ka-")
    if len(os.fsencode(made)) + len("/s-10") > SOCKET_PATH_MAX:
        Path(made).rmdir()
        made = tempfile.mkdtemp(prefix="ka-", dir="/tmp")
    return Path(made)


def _last_lines(log: Path, lines: int = 5) -> str:
    try:
        text = log.read_text(errors="replace").strip()
    except OSError:
        return ""
    return "\n" + "\n".join(text.splitlines()[-lines:]) if text else ""
