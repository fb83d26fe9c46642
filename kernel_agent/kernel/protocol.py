"""The seam between a session and the kernel that runs its cells.

A :class:`Kernel` runs cells one after the other and keeps their variables. Three kinds are behind
it: a Jupyter kernel in its sandbox (:mod:`.process`; :mod:`.remote` has those of other machines),
the interpreter (:mod:`.interpreter`), and one in this process, for tests (:mod:`.fake`). What
differs between them beyond these methods is a capability of the level
(:class:`kernel_agent.sandbox.levels.Level`); which kind serves a level is decided in
:mod:`.choice` alone.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from kernel_agent.errors import KernelError, SandboxError
from kernel_agent.records import CellResult, Json, OutputDict

OnOutput = Callable[[OutputDict], None]
"""Is given each output as it comes."""

Folders = Sequence[Mapping[str, Json]]
"""Folders of data: each with its ``path`` for cells, and the paths in it that are ``left_out``."""

OnRequest = Callable[[str], Awaitable[str]]
"""Answers a call of the host: text in, text out (``inkernel/rpc.py`` has the wire)."""


class Kernel(Protocol):
    """Runs cells, and keeps what they define; an async context manager."""

    steps: int
    """The number of the latest cell."""

    sandbox_report: Mapping[str, Any]
    """Findings of the sandbox's self-test when the kernel started; empty without one."""

    @property
    @abstractmethod
    def alive(self) -> bool:
        """Whether cells can be run."""

    @abstractmethod
    async def start(self) -> None:
        """Start it, and wait until no output of it can be missed.

        Raises
        ------
        KernelStartError
            It did not start.
        """

    @abstractmethod
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
            The source.
        step
            The number under which ``outputs[step]`` keeps the text; counted on by default. 0 is
            for cells of the host's own.
        timeout_s
            Seconds until the cell is interrupted; None for no limit.
        waited
            Seconds so far in which a person was waited for; they do not count.
        on_output
            Called with each output as it arrives.
        on_request
            Called with each host call's text; returns the reply's text.

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

    @abstractmethod
    async def get(self, names: Sequence[str]) -> dict[str, Any]:
        """Return variables; what the kernel says of them is checked while it is read.

        Raises
        ------
        InputError
            There is no such variable, or its value has no form in which it could cross.
        KernelError
            The kernel did not answer as it should; KernelDied when it is gone.
        """

    @abstractmethod
    async def get_answer(self) -> Json:
        """Return the latest answer in the wire's forms, not decoded: another kernel will do that.

        Raises
        ------
        InputError
            It has no such form.
        KernelError
            The kernel did not give it: it is too large, or the kernel has ended.
        """

    @abstractmethod
    async def take_answer(self) -> Any:
        """Return the latest answer itself, with its type and all its rows, as :meth:`get` does.

        Raises
        ------
        InputError
            It has no form in which it could cross, or is too large; the line names its type.
        KernelError
            The kernel did not answer as it should; KernelDied when it is gone.
        """

    async def index(self, folders: Folders, *, sample: int, seconds: float) -> Any:
        """Look through folders of data; return what the kernel says of them: anything.

        Parameters
        ----------
        folders
            Where they are.
        sample
            Characters of the beginning of each file to search in.
        seconds
            What it may take; the rest is not looked at.

        Raises
        ------
        KernelError
            It did not answer as it should, or is a kernel that has no folders.
        """
        del folders, sample, seconds
        raise KernelError("kernels of this kind have no folders of data")

    @abstractmethod
    async def interrupt(self) -> None:
        """End the running cell; it ends as ``interrupted``."""

    async def hibernate(self, folder: Path) -> None:
        """Write the kernel to a folder and end it, at a level that can.

        Raises
        ------
        SandboxError
            This kind cannot.
        """
        raise SandboxError(f"this kernel cannot be written to {folder}")

    @abstractmethod
    async def close(self) -> None:
        """End it. Safe to call twice, and half-way in a start."""

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


MakeKernel = Callable[..., Kernel]
"""Makes a kernel from ``cwd``, ``tools`` and ``max_operations``: :class:`.fake.FakeKernel` does."""


class Proxy(Protocol):
    """The part of :class:`kernel_agent.sandbox.proxy.Proxy` that a kernel uses."""

    async def start(self, path: Path) -> None:
        """Listen on a unix socket."""

    async def close(self) -> None:
        """End every connection."""


@dataclass(frozen=True, kw_only=True)
class Access:
    """The paths that a sandboxed kernel may touch beside its folder, and those denied in it.

    Parameters
    ----------
    protected, hidden
        Paths in the working directory that cells may only read, and paths there and in what is
        readable that they do not see at all.
    readable, listed
        Further files that cells may read, and folders of which they may read the names.
    limits
        What the kernel may use, by the names of :class:`kernel_agent.sandbox.levels.Limits`.
    proxy
        The only way out of the sandbox; it is started and closed with the kernel.
    """

    protected: Sequence[Path] = ()
    hidden: Sequence[Path] = ()
    readable: Sequence[Path] = ()
    listed: Sequence[Path] = ()
    limits: Mapping[str, int] = field(default_factory=dict)
    proxy: Proxy | None = None


@dataclass(frozen=True, kw_only=True)
class KernelOptions:
    """Options for a session's kernel; each kind takes those that it knows.

    Parameters
    ----------
    cwd
        The session's folder, resolved.
    tools
        Descriptions of the host tools that cells can call (:func:`kernel_agent.tools.specs`).
    max_operations
        A cap on what one cell computes, as a guard against mistakes.
    access
        What it may touch, where a sandbox confines it.
    resume
        The folder of a hibernated kernel that goes on.
    inputs
        Files by the path at which cells find them, for kernels on other machines.
    kernelspec
        What starts those.
    """

    cwd: Path
    tools: Sequence[dict[str, Any]] = ()
    max_operations: int | None = None
    access: Access = field(default_factory=Access)
    resume: Path | None = None
    inputs: Mapping[str, Path] = field(default_factory=dict)
    kernelspec: str = ""
