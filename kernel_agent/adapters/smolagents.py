"""A sandboxed Jupyter kernel as the executor of a smolagents ``CodeAgent``.

::

    from smolagents import CodeAgent
    from kernel_agent.adapters.smolagents import KernelExecutor

    with KernelExecutor(data=["sales.csv"]) as executor:
        agent = CodeAgent(
            tools=[...], model=model, executor=executor, additional_authorized_imports=["*"]
        )
        agent.run("Which month sold most? The table is data/sales.csv.")

The code runs in a kernel of its own; variables live on from step to step. Any package of the
environment may be imported, the sandbox confines what it can do: ``additional_authorized_imports``
is what smolagents tells the model of it. An executor serves one agent at a time. Tools and managed
agents are called on the host, where their keys are. DataFrames, arrays and pictures cross in both
directions as what they are (Arrow, raw numbers, PNG), nothing is pickled.

The interface is that of ``smolagents.PythonExecutor`` (release 1.26): ``send_tools``,
``send_variables``, and a call with the code that returns a ``CodeOutput``.
"""

from __future__ import annotations

import base64
import io
import tempfile
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from smolagents.local_python_executor import CodeOutput, PythonExecutor
from smolagents.utils import truncate_content

from kernel_agent import Session
from kernel_agent.errors import UsageError
from kernel_agent.inkernel import smolagents, values
from kernel_agent.models import ScriptedModel
from kernel_agent.notebook import cut_traceback
from kernel_agent.records import CellResult, OutputDict
from kernel_agent.safe import clear, plain
from kernel_agent.sandbox import AUTO, level_of

_INSIDE = "__import__('importlib').import_module('_kernel_agent_inside.smolagents')"
_FOREIGN = "get_ipython().kernel_agent_foreign"

SHARED = "this executor is running a cell: every agent needs a KernelExecutor of its own"
OVER = "this executor was cleaned up: make a new one"


class CellFailed(Exception):
    """A cell raised; the message is what the model is shown."""


class KernelExecutor(PythonExecutor):  # type: ignore[misc]  # the base is unannotated
    """Runs a smolagents agent's code in a sandboxed kernel; a context manager.

    Parameters
    ----------
    sandbox
        The level of protection, as in :class:`~kernel_agent.session.session.Session`.
    data
        Files that the code finds in ``data/``.
    out
        The folder in which the code works; a temporary one, removed at the end, by default.
    cell_seconds
        Seconds until a cell is interrupted.
    max_logs
        Characters of printed output that the agent is given of one cell.
    """

    def __init__(
        self,
        *,
        sandbox: str | None = None,
        data: Sequence[str | Path] = (),
        out: str | Path | None = None,
        cell_seconds: float | None = None,
        max_logs: int = 50_000,
    ) -> None:
        # Its finalizer removes it also where nobody cleans up.
        self._remove: Callable[[], object] = lambda: None
        if out is None:
            out = Path(tempfile.mkdtemp(prefix="kernel-agent-smolagents-"))
            self._remove = weakref.finalize(self, clear, out)
        self._session = Session(
            model=ScriptedModel([]),
            sandbox=sandbox,
            data=data,
            out=out,
            tools=self._host_functions(),
        )
        level = self._session.sandbox
        if level != AUTO and not level_of(level).has_packages:
            raise UsageError("the executor needs a Jupyter kernel: another level than interpreter")
        self._cell_seconds = cell_seconds
        self._max_logs = max_logs
        self._tools: dict[str, Callable[..., Any]] = {}
        self._defined: dict[str, str] = {}  # the tools that the kernel has, with what they are
        self._variables: dict[str, Any] = {}
        self._answer: list[Any] = []
        self._context = copy_context()
        self._running = threading.Lock()
        self._begun = False
        self.state: dict[str, Any] = {"_print_outputs": ""}
        """The agent's text after a failure: the output printed before it."""
        self.images: list[Any] = []
        """The pictures that the latest cell displayed, as PIL images."""

    # --- what smolagents calls -------------------------------------------------------------

    def send_tools(self, tools: Mapping[str, Callable[..., Any]]) -> None:
        """Make the agent's tools callable in the kernel, and no others; called before each run.

        Raises
        ------
        UsageError
            The caller's: a name that Python does not allow, an executor that was cleaned up or
            is at work for another agent.
        """
        wrong = [name for name in tools if not name.isidentifier()]
        if wrong:
            raise UsageError(f"a tool's name must be a Python name: {', '.join(wrong)}")
        self._begin()
        self._tools = dict(tools)
        self._define()

    def send_variables(self, variables: Mapping[str, Any]) -> None:
        """Define variables in the kernel; called with the agent's state before each run.

        Raises
        ------
        UsageError
            The caller's: a value that cannot be passed; the message names the variable.
        """
        if not variables:
            return
        self._begin()
        known, self._variables = self._variables, {**self._variables, **variables}
        try:
            self._run_ours(f"{_FOREIGN}.give({list(variables)!r})")
        except UsageError:
            self._variables = known
            raise

    def __call__(self, code_action: str) -> CodeOutput:
        """Run a cell.

        Raises
        ------
        CellFailed
            The code raised, took too long, or cost the kernel.
        KeyboardInterrupt
            The user's: Ctrl-C.
        """
        self._begin()
        answer = self._answer = []
        self._context = copy_context()
        result = self._execute(code_action, self._cell_seconds)
        logs = truncate_content(_join_output(result), self._max_logs)
        self.state["_print_outputs"] = logs
        self.images = _pictures(result)
        if answer:
            return CodeOutput(output=answer[0], logs=logs, is_final_answer=True)
        if result.status == "interrupted":
            raise KeyboardInterrupt
        if not result.ok:
            raise CellFailed(_reason(result))
        return CodeOutput(output=_last_value(result), logs=logs, is_final_answer=False)

    def cleanup(self) -> None:
        """End the kernel; called by the agent's own ``cleanup``. Safe to call twice."""
        self._session.close_sync()
        self._remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.cleanup()

    # --- inside ----------------------------------------------------------------------------

    def _host_functions(self) -> list[Callable[..., Any]]:
        """Return the host functions that the kernel calls, by the names that it knows."""

        def agent_tool(name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
            """Call a tool of the agent."""
            return self._call_tool(name, args, kwargs)

        def agent_variable(name: str) -> Any:
            """Return a variable of the agent's."""
            return _plain(self._variables[name])

        return [agent_tool, agent_variable]

    def _begin(self) -> None:
        """Set up the kernel, or its replacement, with the tools and variables sent so far."""
        if self._session.closed:
            raise UsageError(OVER)
        if self._begun and self._session.alive:
            return
        self._run_ours(f"{_INSIDE}.begin(get_ipython())")
        self._begun, self._defined = True, {}
        self._define()
        if self._variables:
            self._run_ours(f"{_FOREIGN}.give({list(self._variables)!r})")

    def _define(self) -> None:
        described = {
            name: str(getattr(tool, "description", "") or "") for name, tool in self._tools.items()
        }
        if described != self._defined:
            self._run_ours(f"{_FOREIGN}.define({described!r})")
            self._defined = described

    def _run_ours(self, source: str) -> None:
        result = self._execute(source, None)
        if not result.ok:
            raise UsageError(result.error.evalue if result.error else _reason(result))

    def _execute(self, source: str, seconds: float | None) -> CellResult:
        if not self._running.acquire(blocking=False):
            raise UsageError(SHARED)
        try:
            result = self._session.execute_sync(source, timeout_s=seconds)
        finally:
            self._running.release()
        if result.status == "dead":
            self._begun = False
        return result

    def _call_tool(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call one of the agent's tools; in a thread of the host, for code in the kernel."""
        answer = self._answer  # of the cell that calls, should the call outlive it
        tool = self._tools.get(name)
        if tool is None:
            raise NameError(f"there is no tool {name!r}")
        # What the agent has set around its step (a span, a context variable) holds for the tool.
        result = self._context.copy().run(tool, *args, **kwargs)
        if name == smolagents.FINAL:
            answer.append(result)
            return None
        return _plain(result)


def _plain(value: Any) -> Any:
    """Unwrap an ``AgentText`` or ``AgentImage``; return anything else as it is."""
    raw = getattr(value, "to_raw", None)
    return raw() if callable(raw) else value


def _join_output(result: CellResult) -> str:
    """Return the cell's printed text, then its displays as text."""
    return plain("".join(map(_text, result.outputs)))


def _text(output: OutputDict) -> str:
    if output.get("output_type") == "display_data":
        shown = str(output.get("data", {}).get("text/plain", ""))
        return f"{shown}\n" if shown else ""
    return str(output.get("text", "")) if output.get("output_type") == "stream" else ""


def _last_value(result: CellResult) -> str | None:
    shown = [o for o in result.outputs if o.get("output_type") == "execute_result"]
    return plain(shown[-1].get("data", {}).get("text/plain", "")) if shown else None


def _pictures(result: CellResult) -> list[Any]:
    from PIL import Image

    found = []
    for output in result.outputs:
        png = output.get("data", {}).get("image/png")
        if isinstance(png, str):
            image = Image.open(io.BytesIO(base64.b64decode(png)), formats=("PNG",))
            if image.width * image.height <= values.PIXELS_MAX:
                image.load()
                found.append(image)
    return found


def _reason(result: CellResult) -> str:
    if result.status == "timeout":
        return f"The code took longer than it may ({result.seconds:.0f} s) and was interrupted."
    error = result.error
    if error is None:
        return f"The cell ended as {result.status}."
    if result.status == "dead":
        return f"The kernel was lost, all variables that the code made are gone: {error.evalue}"
    short = cut_traceback(error)
    return plain(f"{short.before}\n{short.message}".strip())
