"""ipykernel, set up for an agent.

Every deviation from a stock kernel is here, with the reason that was measured
(``docs/design.md``, "Kernel").
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import sys
import warnings
from typing import Any

import zmq
from ipykernel.kernelapp import IPKernelApp
from traitlets import Type

from . import transfer  # noqa: F401 - the host's cells find it among the loaded modules
from .delegate import make_delegate
from .display import DisplayCap, FinalAnswer, install
from .opcount import Counting
from .outputs import Memory
from .rpc import HostChannel, make_function, refuse_input, show_without_our_frames
from .stream import CappedStream
from .variables import Variables

ANSI = re.compile(r"\x1b\[[0-9;]*m")


class AgentKernelApp(IPKernelApp):
    """The kernel application, with sockets that drop nothing."""

    blocking_class = Type(object)  # a client of its own: nobody asks for it, and its import is long

    def init_iopub(self, context: zmq.Context[Any]) -> None:
        """Make the output socket; called by ipykernel during start-up."""
        # libzmq keeps 1000 messages a peer and drops the rest in silence: with a busy client that
        # is lost output, and once it was the cell's end.
        context.setsockopt(zmq.SNDHWM, 0)
        super().init_iopub(context)


def start(connection_file: str, settings: dict[str, Any]) -> AgentKernelApp:
    """Build the kernel up to the point where ``start()`` serves it; called by ``launch.py``."""
    app = AgentKernelApp.instance(
        connection_file=connection_file,
        outstream_class=f"{__package__}.stream.CappedStream",
        parent_handle=1,  # to ipykernel: a parent that never ends; ours is watched by watch.py
    )
    # A database on disk costs 1-2 ms of every cell.
    app.config.HistoryManager.hist_file = ":memory:"
    app.initialize([])
    # IPython drops old entries of Out after a thousand results, and says so in mid-cell.
    warnings.filterwarnings("ignore", "Output cache limit")
    warnings.filterwarnings("ignore", "To exit: use")  # advice for a person at a prompt
    kernel: Any = app.kernel
    shell: Any = app.shell
    kernel._execute_sleep = 0  # waits for a race that our client does not have
    # IPython keeps all that is printed, for good, and hides our cap while it does so.
    shell._tee = lambda channel: contextlib.nullcontext()  # noqa: ARG005 - called by keyword
    # IPython formats each traceback a second time, for `%notebook`: a stop would wait for it.
    shell._format_exception_for_storage = lambda error, **_: {
        "ename": type(error).__name__, "evalue": "", "traceback": [],
    }  # fmt: skip
    if not _has_terminals():
        shell.system = shell.system_raw  # `!command`: ipykernel's own way needs a pseudo-terminal
    _install_namespace(kernel, shell, settings)
    return app


class WidePandas:
    """Finds pandas, and makes the tables that it prints as wide as a reader's page.

    Its own 80 characters break a table of ten columns into pieces, each with its header.
    """

    def __init__(self, width: int = 160) -> None:
        self._width = width
        self._is_looking = False

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> Any:
        """Return how pandas is loaded; called by the import system for each module."""
        if name != "pandas" or self._is_looking:
            return None
        self._is_looking = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._is_looking = False
        loader: Any = spec and spec.loader
        if loader is not None:
            load = loader.exec_module

            def load_wide(module: Any) -> None:
                load(module)
                module.set_option("display.width", self._width)

            loader.exec_module = load_wide
        return spec


PAGE_MIME = "application/vnd.kernel-agent.page+json"


def show_page(shell: Any, page: Any, *_: Any, **__: Any) -> None:
    """Display what IPython hands to a pager (``name?``), marked as no output of the cell.

    Jupyter shows it beside the notebook; an agent reads it, and its notebook has it.

    Parameters
    ----------
    shell
        IPython's.
    page
        Text, or a dict of representations with ``text/plain`` among them.
    """
    shown = page.get("text/plain", "") if isinstance(page, dict) else page
    text = ANSI.sub("", str(shown))
    shell.display_pub.publish({"text/plain": text, PAGE_MIME: {}})


def end_cell() -> None:
    """End the cell when code calls ``exit()``, which would end the kernel.

    ipykernel lets the cell go on, and ends with all variables a moment later, in another cell.

    Raises
    ------
    SystemExit
        Always.
    """
    raise SystemExit


def _has_terminals() -> bool:
    try:
        for handle in os.openpty():
            os.close(handle)
    except OSError:
        return False
    return True


def _install_namespace(kernel: Any, shell: Any, settings: dict[str, Any]) -> None:
    memory = Memory()
    CappedStream.memory = memory
    install(shell)
    sys.meta_path.insert(0, WidePandas(**settings.get("tables", {})))
    final_answer = FinalAnswer(shell)
    cap = DisplayCap(memory.append)
    cap.install(shell)
    kernel.raw_input = kernel.getpass = refuse_input
    channel = HostChannel(kernel)
    show_without_our_frames(shell)
    shell.ask_exit = end_cell
    shell.set_hook("show_in_pager", show_page, 0)  # `name?`: there is no pager, and no payload
    names = {"final_answer": final_answer, "outputs": memory}
    for spec in settings.get("tools", []):
        make = make_delegate if spec["name"] == "delegate" else make_function
        names[spec["name"]] = make(spec, channel)
    shell.kernel_agent_answer = final_answer  # for transfer.py
    shell.push(names, interactive=False)
    cells = Cells(kernel, shell, memory, cap, final_answer, channel=channel)
    shell.events.register("pre_run_cell", cells.begin)
    if settings.get("max_operations") is not None:
        counting = Counting(int(settings["max_operations"]))
        shell.ast_transformers.append(counting)
        shell.events.register("pre_run_cell", lambda _info: counting.begin())
    shell.events.register("post_run_cell", cells.end)
    kernel.init_metadata = cells.number
    kernel.finish_metadata = cells.report


class Cells:
    """Hooks around each cell, registered with IPython's events."""

    def __init__(
        self,
        kernel: Any,
        shell: Any,
        memory: Memory,
        cap: DisplayCap,
        final_answer: FinalAnswer,
        *,
        channel: HostChannel,
    ) -> None:
        self._kernel = kernel
        self._shell = shell
        self._memory = memory
        self._cap = cap
        self._final_answer = final_answer
        self._channel = channel
        self._variables = Variables(shell.user_ns)
        self._init_metadata = kernel.init_metadata
        self._source = ""
        self._step = 0

    def number(self, parent: dict[str, Any]) -> dict[str, Any]:
        """Number the cell as the host numbers the step.

        ipykernel calls this hook before IPython takes the number, by which tracebacks, `In` and
        `Out` name the cell.
        """
        if not parent["content"].get("silent"):
            ours = parent.get("metadata", {}).get("kernel_agent", {})
            self._step = self._shell.execution_count = int(ours.get("step", self._step + 1))
            history = self._shell.history_manager
            for inputs in (history.input_hist_parsed, history.input_hist_raw):
                inputs.extend([""] * (self._step - len(inputs)))  # of steps that ran no cell
        metadata: dict[str, Any] = self._init_metadata(parent)
        return metadata

    def begin(self, info: Any) -> None:
        """Make sure that the run can be ended."""
        kernel = self._kernel
        parent = kernel.get_parent("shell")
        self._channel.begin(parent, kernel._get_shell_context_var(kernel._shell_parent_ident))
        self._source = str(info.raw_cell or "")
        self._memory.begin(self._step, self._source)
        self._cap.begin()
        self._final_answer.begin(self._source)
        self._shell.user_ns["final_answer"] = self._final_answer
        self._shell.user_ns.setdefault("outputs", self._memory)  # after `del outputs`

    def end(self, result: Any) -> None:
        """Publish pending output before the cell's end is announced."""
        if result.error_before_exec or result.error_in_exec:
            lines = getattr(self._shell, "_last_traceback", None) or []
            self._memory.append(ANSI.sub("", "\n".join(lines)) + "\n")
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, CappedStream):
                stream.end_cell(self._step)

    def report(
        self, parent: dict[str, Any], metadata: dict[str, Any], _content: object
    ) -> dict[str, Any]:
        """Report changed variables in the metadata of the cell's reply.

        ipykernel calls this hook before it sends the reply, so the report is no message of its
        own. It reads memory and calls no code of the cell's.
        """
        if parent.get("msg_type") != "execute_request":
            return metadata
        try:
            variables = self._variables.look(self._source)
        except BaseException:  # an interrupt that comes late: the next report has it all
            return metadata
        return {**metadata, "kernel_agent": {"variables": variables}}
