"""Kernel provisioner: jupyter_client's seam for starting kernels, filled by the levels.

Registered as ``kernel-agent`` under the entry point group ``jupyter_client.kernel_provisioners``,
so that any Jupyter application can use it. Our own sessions say in the kernelspec's metadata what
the kernel is granted. An application does not: its kernel gets the directory that it is started in.
As no network leads into a sandbox, the kernel has ``ipc`` sockets instead of TCP ports; and as a
front end renders what a kernel says with its person's rights, the application has others, behind
which a relay passes on what is harmless (:mod:`kernel_agent.adapters.jupyter`).

What belongs to a kernel on the host (sockets, connection file, log, temporary files) lies in one
private directory. It is removed when the kernel has ended; when the host is killed, by the reaper.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
import subprocess
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.provisioning.local_provisioner import LocalProvisioner
from traitlets import Bool, Dict, Unicode

from kernel_agent.errors import SandboxError
from kernel_agent.safe import (
    LEFT,
    SOCKETS,
    Notebooks,
    Watch,
    clear,
    is_made_here,
    notebooks_line,
    obeyed_line,
    private_directory,
    record,
    remove,
)
from kernel_agent.sandbox.cgroup import move
from kernel_agent.sandbox.chooser import choose, hibernating, mechanism
from kernel_agent.sandbox.environment import clean_environment, proxy_variables, without_dots
from kernel_agent.sandbox.grants import derive, read_grant
from kernel_agent.sandbox.launcher import reaper
from kernel_agent.sandbox.levels import Launch, Level
from kernel_agent.sandbox.reaper_client import reaper_client
from kernel_agent.sandbox.relay_client import RelayClient
from kernel_agent.sandbox.selftest import ASKED, Plant, read_report
from kernel_agent.sandbox.steps import plan_group
from kernel_agent.sandbox.watchdog import Watchdog

PATIENCE_S = 1.0  # from the request to end to the kill
LOOK_EVERY_S = 0.001  # for the end of something that takes some milliseconds
FRONT = "app"  # the folder of an application's sockets, which no sandbox sees
PORTS = ("shell_port", "iopub_port", "stdin_port", "hb_port", "control_port")


class KernelAgentProvisioner(LocalProvisioner):
    """Starts kernels in a sandbox; jupyter_client calls it through ``KernelManager``."""

    level = Unicode("auto", help="The sandbox level, or auto.").tag(config=True)
    grant = Dict(help="What the kernel is granted; see grants.read_grant.").tag(config=True)

    live_displays = Bool(
        default_value=False, help="Pass on to an application whatever its kernel displays."
    ).tag(config=True)
    resume = Unicode("", help="The folder of a hibernated kernel, to go on with.").tag(config=True)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.resumed: dict[str, Any] = {}
        """Notes on the kernel from its hibernation; empty for a new one."""
        self.chosen: Level | None = None
        self.on_limit: Callable[[str], Awaitable[None]] | None = None
        """Called when a limit is exceeded, before the kernel is killed."""
        self._directory: Path | None = None
        self._launch: Launch | None = None
        self._groups: tuple[str, ...] = ()
        self._plant: Plant | None = None
        self._watchdog: Watchdog | None = None
        self._original: KernelConnectionInfo | None = None
        self._relay_told: dict[str, Any] | None = None
        self._relay: RelayClient | None = None
        self._obeyed: Watch | None = None  # of the folder of an application's kernel
        self._notebooks: Notebooks | None = None  # there

    # --- called by the manager, in this order ------------------------------------------------

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Choose the level and prepare the launch; called by the manager's ``start_kernel``.

        Raises
        ------
        SandboxError
            The level does not work here, or what is asked for cannot be granted.
        """
        self._undo()
        log_path = kwargs.pop("log_path", None)
        cwd = Path(kwargs.get("cwd") or Path.cwd())
        self.cwd = str(cwd)  # where applications look for the files that a kernel speaks of
        self.chosen = await _in_thread(partial(choose, self.level))
        self._directory = directory = self._own_directory()
        prepare = mechanism(self.chosen.name).prepare
        if self.resume:
            hibernation = hibernating(self.chosen.name)
            asleep = await _in_thread(partial(hibernation.read_hibernated, Path(self.resume)))
            self.resumed = asleep.kernel
            cast("Any", self.parent).session.key = self.resumed["key"].encode()
            prepare = partial(hibernation.prepare, resume=Path(self.resume))
        launch: dict[str, Any] = await super().pre_launch(**kwargs)
        outside = dict(launch.get("env") or os.environ)
        named = {name: outside[name] for name in self.kernel_spec.env if name in outside}
        environment = {**clean_environment(outside), **named}
        python, *words = launch["cmd"]
        if os.pardir in Path(python).parts:
            python = str(without_dots(Path(python)))
        command = self._with_sockets([python, *words], directory)
        grant = (
            read_grant(self.grant, command, directory)
            if self.grant
            else derive(cwd, command, directory)
        )
        if grant.proxy is not None:
            if not self.chosen.opens_hosts:
                raise SandboxError(
                    f"the sandbox level {self.chosen.name} cannot open single hosts "
                    "(--allow-host); bubblewrap can"
                )
            environment |= proxy_variables()
        if not self.grant:
            self._obeyed = Watch(grant.workspace)
            own = getattr(self.parent, "kernel_name", "")
            self._notebooks = await _in_thread(partial(Notebooks, grant.workspace, own))
        self._groups = plan_group(grant)
        record(directory, [["empty", path] for path in self._groups])
        reaper_client.watch(directory)
        if self.chosen.claims and not self.resume:
            (directory / ASKED).touch()  # of the kernel's mounts, as files are that are there
            list_mounts = getattr(mechanism(self.chosen.name), "mounts", None)
            mounts = list_mounts(grant, environment) if list_mounts else None
            self._plant = Plant(self.chosen, grant, environment, directory, mounts)
        preparing = partial(prepare, grant, command, environment)
        self._launch = prepared = await _in_thread(preparing) if self.resume else preparing()
        self._watchdog = Watchdog(grant)
        launch |= {
            "cmd": list(prepared.command),
            "env": dict(prepared.environment),
            "cwd": "/" if self.chosen.confines else str(cwd),
            "log_path": log_path or str(directory / "log"),
            "pass_fds": prepared.pass_fds,
        }
        return launch

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        """Start the process; its own descriptors go to a log that only tells why it did not start.

        Output of cells never gets there: a pipe that nobody reads would hang the cell.
        """
        assert self._directory is not None
        assert self._launch is not None
        with Path(kwargs["log_path"]).open("ab") as log:  # noqa: ASYNC230 - a small local file
            self.process = subprocess.Popen(  # noqa: ASYNC220, S603 - it is not waited for
                cmd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment(kwargs["env"]),
                cwd=kwargs["cwd"],
                start_new_session=True,
                pass_fds=kwargs["pass_fds"],
            )
        for descriptor in kwargs["pass_fds"]:
            os.close(descriptor)
        self.pid = self.pgid = self.process.pid
        threading.Thread(target=move, args=(self.pid, self._groups), daemon=True).start()
        end = ("end", str(self.pid), reaper.born(self.pid), str(int(self._launch.ended_by)))
        actions = [list(action) for action in (end, *self._launch.undo)]
        if self._relay_told is not None:
            self._relay = RelayClient(self._relay_told, Path(kwargs["log_path"]))
            actions.append(self._relay.undo)
        record(self._directory, actions)
        assert self._watchdog is not None
        kill = partial(self.process.send_signal, self._launch.ended_by)
        self._watchdog.start(self.pid, self._end_for, kill)
        return self.connection_info

    async def poll(self) -> int | None:
        """Return None while the kernel runs; one whose relay has ended is of no more use."""
        if self._relay is not None and not self._relay.alive and self.process is not None:
            self.log.warning("the relay of the kernel has ended, and so the kernel is ended")
            await self.kill()
            deadline = time.monotonic() + PATIENCE_S
            while self.process.poll() is None and time.monotonic() < deadline:  # noqa: ASYNC110
                await asyncio.sleep(LOOK_EVERY_S)
        return await super().poll()

    async def send_signal(self, signum: int) -> None:
        """Pass a signal on; an interrupt never, in a sandbox.

        It would end the processes around the kernel. Our kernelspecs have interrupts sent as
        messages.
        """
        confined = self.chosen is not None and self.chosen.confines
        if signum == signal.SIGINT and confined:
            self.log.warning("a sandboxed kernel is interrupted by message, not by signal")
            return
        await super().send_signal(signum)

    async def kill(self, restart: bool = False) -> None:  # noqa: FBT001, FBT002 - the base's signature
        """End everything at once, children of cells included."""
        if self.process is None:
            return
        if self._launch is not None and self._launch.ended_by != signal.SIGKILL:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(self._launch.ended_by)
            deadline = time.monotonic() + PATIENCE_S
            while self.process.poll() is None and time.monotonic() < deadline:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self.pgid:
                os.killpg(self.pgid, signal.SIGKILL)
        await super().kill(restart=restart)

    async def terminate(self, restart: bool = False) -> None:  # noqa: FBT001, FBT002 - the base's signature
        """End everything; the kernel has been asked to end before."""
        await self.kill(restart=restart)

    async def wait(self) -> int | None:
        """Wait for the end, then undo the start."""
        while self.process is not None and self.process.poll() is None:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        code = await super().wait()
        await _in_thread(self._undo)
        return code

    async def cleanup(self, restart: bool = False) -> None:  # noqa: FBT001, FBT002 - the base's signature
        """Remove the kernel's files; after a restart the sockets keep their place."""
        await _in_thread(self._undo)
        if self._obeyed is not None and (made := await _in_thread(self._obeyed.news)):
            self.log.warning("%s", obeyed_line(made))
        if self._notebooks is not None and (now := await _in_thread(self._notebooks.news)):
            self.log.warning("%s", notebooks_line(now))
        if self._original is not None:
            self.connection_info = self._original
        await super().cleanup(restart=restart)
        if not restart and self._directory is not None:
            reaper_client.forget(self._directory)
            await _in_thread(partial(clear, self._directory))
            self._directory = None

    # --- called by our sessions ----------------------------------------------------------------

    @property
    def patience_s(self) -> float:
        """The longest that a kernel of the chosen level may take to give a sign of life."""
        return self.chosen.patience_s if self.chosen else Level.patience_s

    def report(self) -> dict[str, Any]:
        """Return the self-test's findings, after the kernel has shown a sign of life.

        Raises
        ------
        SandboxError
            Something that the level claims does not hold, or there is no report.
        """
        assert self.chosen is not None
        if self.resumed:
            return {**self.resumed.get("report", {}), "resumed": True}
        report = (
            read_report(self._plant) if self._plant else {"level": self.chosen.name, "holds": {}}
        )
        about = getattr(mechanism(self.chosen.name), "facts", None)
        return {**report, "machine": about()} if about else report

    async def hibernate(self, folder: Path, note: dict[str, Any]) -> None:
        """Write the kernel to a folder and end it; ``resume`` names that folder later.

        Parameters
        ----------
        folder
            Must not exist.
        note
            JSON values that are in :attr:`resumed` when the kernel goes on.

        Raises
        ------
        SandboxError
            The level cannot do that, or it failed.
        """
        assert self.chosen is not None
        assert self._directory is not None
        kernel = {**note, "key": _text(self.connection_info["key"])}
        await hibernating(self.chosen.name).hibernate(self._directory / SOCKETS, folder, kernel)

    async def _end_for(self, reason: str) -> None:
        if self.on_limit is None:
            self.log.warning("the kernel is ended: %s", reason)
        else:
            await self.on_limit(reason)
        await self.kill()

    # --- parts -----------------------------------------------------------------------------------

    def _own_directory(self) -> Path:
        if self._directory is not None and self._directory.is_dir():
            directory = self._directory  # a restart
        else:
            given = self.grant.get("directory")
            directory = Path(given) if given else private_directory()
            if not is_made_here(directory):  # what is in it is removed
                raise SandboxError(f"{directory} is not a private directory of this process")
        for name in (SOCKETS, "tmp"):
            _set_aside(directory / name)
            (directory / name).mkdir(mode=0o700)
        return directory

    def _with_sockets(self, command: list[str], directory: Path) -> list[str]:
        """Point the connection at sockets in the private directory, if it does not.

        Returns the command with the path of the connection file that tells so.
        """
        assert self.chosen is not None
        manager: Any = self.parent
        if manager is None or not self.chosen.confines:
            return command
        named = os.path.realpath(manager.connection_file)
        if Path(named).parent == directory:
            return command
        self._original = self._original or self.connection_info
        asked: dict[str, Any] = {**self.connection_info, "transport": "ipc"}
        asked |= {name: number for number, name in enumerate(PORTS, 1)}
        kernel = {**asked, "ip": str(directory / SOCKETS / "s"), "key": _text(asked["key"])}
        if self.live_displays:
            self.connection_info = {**kernel, "key": asked["key"]}  # type: ignore[typeddict-item]
        else:
            kernel["key"] = secrets.token_hex(32)  # the application's is never in the sandbox
            (directory / FRONT).mkdir(mode=0o700, exist_ok=True)
            front = {**asked, "ip": str(directory / FRONT / "s")}
            self.connection_info = front  # type: ignore[assignment]  # a dict of the same keys
            self._relay_told = {
                "application": front["ip"],
                "application_key": _text(front["key"]),
                "kernel": kernel["ip"],
                "kernel_key": kernel["key"],
                "ports": {name.removesuffix("_port"): kernel[name] for name in PORTS},
                "scheme": front["signature_scheme"],
            }
        ours = directory / "k.json"
        ours.unlink(missing_ok=True)
        ours.touch(mode=0o600)
        ours.write_text(json.dumps(kernel))
        return [str(ours) if word == named else word for word in command]

    def _environment(self, environment: dict[str, str]) -> dict[str, str]:
        assert self.chosen is not None
        watched = {"JPY_PARENT_PID": str(os.getpid())}
        return {**environment, **({} if self.chosen.confines else watched)}

    def _undo(self) -> None:
        if self._relay is not None:
            self._relay.close()
            self._relay = None
        if self._watchdog is not None:
            self._watchdog.stop()
            self._watchdog = None
        if self._plant is not None:
            self._plant.close()
            self._plant = None
        launch, self._launch = self._launch, None
        if launch is not None:
            reaper.undo([list(action) for action in launch.undo])
            launch.close()


def _text(key: bytes | str) -> str:
    return key.decode() if isinstance(key, bytes) else key


def _set_aside(folder: Path) -> None:
    """Remove an earlier kernel's files there; rename those that cannot be removed now."""
    if not remove(folder):
        folder.rename(folder.with_name(f"{LEFT}-{folder.name}-{time.monotonic_ns()}"))


T = TypeVar("T")


async def _in_thread(work: Callable[[], T]) -> T:
    """Run a blocking function in a new thread, and poll for its end.

    A process that forks, as for a pool of notebooks, leaves its event loop to the child. There the
    threads of that loop are gone, and what wakes it up may wake up the parent.
    """
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # it is raised where the end is waited for
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    while not done.done():  # noqa: ASYNC110 - see above
        await asyncio.sleep(LOOK_EVERY_S)
    return done.result()
