"""Sandbox levels: name, protections, gaps, and the way to start a kernel.

A level is one module of this package with three names:

``LEVEL``
    a :class:`Level`: the statement about it that ``doctor``, the trace and ``SECURITY.md`` print;
``probe()``
    tries the mechanism for real, in this process's situation, and returns a :class:`Probe`;
``prepare(grant, command, environment)``
    returns a :class:`Launch`: the process to start so that ``command`` runs with no more than
    ``grant``.

The provisioner starts the process, and calls ``Launch.close`` when it has ended. No level falls
back to a weaker one: what cannot be prepared raises :class:`~kernel_agent.errors.SandboxError`.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from kernel_agent.records import DataFile


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits on one kernel with all its children; None means no limit.

    ``memory_mb`` is address space where only rlimits are available and resident memory where a
    cgroup is writable; ``disk_mb`` is what may be written in the workspace and the temporary
    directory together; ``file_mb`` the size of one file.

    As many descriptors as ``open_files``, and 253 more, may lie unread in sockets, counted for the
    user; another of the user's programs can send none while there are more than it may open itself,
    which is usually 1,024.
    """

    memory_mb: int | None = None
    processes: int = 256
    open_files: int = 768
    file_mb: int = 1024
    disk_mb: int = 2048

    @property
    def largest_mb(self) -> int:
        """The size that one file may have: not more than all may have together."""
        return min(self.file_mb, self.disk_mb)


@dataclass(frozen=True, kw_only=True)
class Grant:
    """The files, sockets and limits of one kernel. All paths are absolute and resolved.

    Parameters
    ----------
    python
        The interpreter; it and its packages become readable.
    code
        The directory of ``launch.py``: readable.
    workspace
        The kernel's working directory: readable and writable.
    protected
        Paths inside the workspace that are only readable (inputs) .
    hidden
        Paths inside the workspace, and in what is readable, that do not exist for the kernel (the
        trace, the notebook, keys in a folder of data).
    readable
        Further files and directories, outside the workspace, that are readable (linked inputs).
    listed
        Further directories of which the names may be read, at a level that hides no paths.
    sockets
        The directory in which the kernel makes its sockets: writable, short, its own.
    scratch
        An empty directory on the host for temporary files, for levels that have no file system
        of their own in memory: writable.
    files
        Files that the kernel needs to start (connection file, settings): readable.
    limits
        What it may use.
    own
        The workspace was made for this kernel: where nothing else helps, it may be lent to
        another user until the kernel has ended.
    proxy
        The unix socket of the host's proxy, when named hosts are allowed.
    """

    python: Path
    code: Path
    workspace: Path
    sockets: Path
    scratch: Path
    files: tuple[Path, ...] = ()
    protected: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()
    listed: tuple[Path, ...] = ()
    limits: Limits = field(default_factory=Limits)
    own: bool = True
    proxy: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Level:
    """A named set of protections, and the plain statement of what each does not cover.

    ``claims`` are the facts of the self-test (:mod:`kernel_agent.inkernel.selftest`) that hold at
    this level; a kernel in which one of them does not hold is not used.

    What else differs between levels is said here, too, as *capabilities*: nobody outside this
    room asks for a level by its name.

    Parameters
    ----------
    statement
        The line on what protects this machine, where the summary does not say enough.
    automatic
        Whether ``auto`` may choose it.
    opens_hosts
        Whether a network that is empty can be opened for named hosts.
    patience_s
        The longest that a kernel may take to give its first sign of life.
    kernel
        What runs the cells: a Jupyter kernel that the provisioner starts, one that another
        provisioner starts elsewhere, or the interpreter.
    confines
        Whether it protects anything at all.
    shares_folder
        Whether kernels see what the host writes into the folder after their start, and folders of
        data in place.
    hides_paths
        Whether paths in the folder can be hidden from a kernel that is confined.
    shows_opened
        Whether the host sees which of its files a kernel opens.
    takes_any_folder
        Whether root can start it in a folder that was not made for the kernel.
    has_packages
        Whether cells can import the packages of the environment.
    has_help
        Whether tools have ``help`` and ``map`` in cells; ``auto`` chooses no level without.
    hibernates
        Whether a kernel can be written to a folder and resumed from there.
    prompt
        What a model has to know about the cells, at the end of the system prompt.
    check_data
        Raises InputError for inputs that cells could not read.
    """

    name: str
    summary: str
    covered: tuple[str, ...]
    not_covered: tuple[str, ...]
    claims: tuple[str, ...] = ()
    statement: str = ""
    automatic: bool = False
    opens_hosts: bool = False
    patience_s: float = 60.0
    kernel: Literal["process", "remote", "interpreter"] = "process"
    confines: bool = True
    shares_folder: bool = True
    hides_paths: bool = True
    shows_opened: bool = True
    takes_any_folder: bool = True
    has_packages: bool = True
    has_help: bool = True
    hibernates: bool = False
    prompt: str = ""
    check_data: Callable[[Sequence[DataFile]], None] = lambda _files: None

    @property
    def line(self) -> str:
        """One line on the protection of this machine; shown at every start."""
        return self.statement or f"Sandbox: {self.name} ({self.summary})"


@dataclass(frozen=True, kw_only=True)
class Probe:
    """Whether a level works here: found by trying it. ``advice`` says what a person can do.

    It is ``undecided`` when the try did not end in time: a busy machine says nothing of a level.
    """

    works: bool
    reason: str
    advice: str = ""
    undecided: bool = False


@dataclass(frozen=True, kw_only=True)
class Launch:
    """The process to start, and the actions to undo when it has ended.

    ``close`` is called once, after the process is gone, whatever the way; it removes what
    ``prepare`` made (directories, cgroups, lent ownership) and ends what still belongs to it.
    ``ended_by`` is the signal to the process that ends all of it; SIGKILL to its process group
    follows when it has not ended within a second. ``undo`` lists actions of
    :mod:`kernel_agent.sandbox.launcher.reaper` that are done after the end, also when the host was
    killed: what must not be left behind stands there rather than in ``close``.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    pass_fds: tuple[int, ...] = ()
    ended_by: int = signal.SIGKILL
    undo: tuple[tuple[str, ...], ...] = ()
    close: Callable[[], None] = lambda: None


@dataclass(frozen=True, kw_only=True)
class Mounts:
    """The mounts that a kernel's mount table may hold, for the self-test.

    Parameters
    ----------
    writable
        Places that are, or hold what is, writable; nothing else is.
    readable
        Places beside them that are mounted: all of both are there, and nothing else. None where
        the file tree is the host's.
    sizes
        Bytes of the file systems that are kept in memory.
    """

    writable: tuple[str, ...]
    readable: tuple[str, ...] | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)


class Mechanism(Protocol):
    """The three names that the module of a level has.

    One with a file tree of its own, or one that it changes, may have a fourth,
    ``mounts(grant, environment)``: the :class:`Mounts` that its kernels must find.
    """

    LEVEL: Level

    def probe(self, *kernelspec: str) -> Probe:
        """Try it; only a remote level is given the name of a kernelspec."""

    def prepare(
        self, grant: Grant, command: Sequence[str], environment: Mapping[str, str]
    ) -> Launch:
        """Say how to start ``command`` with no more than ``grant``."""
