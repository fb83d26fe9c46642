"""A sandboxed Jupyter kernel as the executor of a smolagents ``CodeAgent``.

::

    from smolagents import CodeAgent
    from kernel_agent.adapters.smolagents import KernelExecutor

    with KernelExecutor(data=["sales.csv"]) as executor:
        agent = CodeAgent(tools=[...], model=model, executor=executor)
        agent.run("Which month sold most? The table is data/sales.csv.")

The code runs in a kernel of its own (any package of the environment may be imported, the sandbox
confines what it can do); variables live on from step to step. Tools and managed agents are called
on the host, where their keys are. DataFrames, arrays and pictures cross in both directions as what
they are (Arrow, raw numbers, PNG), nothing is pickled.

The interface is that of ``smolagents.PythonExecutor`` (release 1.26): ``send_tools``,
``send_variables``, and a call with the code that returns a ``CodeOutput``.
"""

from __future__ import annotations

import base64
import io
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from smolagents.local_python_executor import CodeOutput, PythonExecutor

from kernel_agent.errors import UsageError
from kernel_agent.inside import values
from kernel_agent.records import CellResult
from kernel_agent.session import Session
from kernel_agent.text import plain
from kernel_agent.tracebacks import cut_traceback

TOOL = "smolagents_tool"  # the one host function behind all tools of the agent

_PRELUDE = f"""\
import json as _json, types as _types
_values = _types.ModuleType("values")
exec(compile(_json.loads(%s), "values.py", "exec"), _values.__dict__)

class _FinalAnswer(BaseException):
    "Ends the cell, past every `except Exception`."

def _tool(name, doc):
    def call(*args, **kwargs):
        result = {TOOL}(name, list(args), kwargs)
        if name == "final_answer":
            raise _FinalAnswer
        return result
    call.__name__ = call.__qualname__ = name
    call.__doc__ = doc
    return call

_tools = {{}}
# A cell may overwrite a tool's name; the next one finds the tool again.
get_ipython().events.register("pre_run_cell", lambda _info: globals().update(_tools))
"""


class CellFailed(Exception):
    """A cell raised; the message is what the model is shown."""


class KernelExecutor(PythonExecutor):  # type: ignore[misc]  # the base is unannotated
    """Runs a smolagents agent's code in a sandboxed kernel; a context manager.

    Parameters
    ----------
    sandbox
        The level of protection, as in :class:`~kernel_agent.session.Session`.
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
        self._temporary = (
            None if out is not None else tempfile.mkdtemp(prefix="kernel-agent-smolagents-")
        )
        self._session = Session(
            model="offline",
            sandbox=sandbox,
            data=data,
            out=out if out is not None else self._temporary,
            tools=[_named(self._call_tool)],
        )
        self._cell_seconds = cell_seconds
        self._max_logs = max_logs
        self._tools: dict[str, Callable[..., Any]] = {}
        self._sent: dict[str, str] = {}
        self._answer: list[Any] = []
        self._started = False
        self.state: dict[str, Any] = {"_print_outputs": ""}
        """What the agent reads after a failure: the text that was printed before it."""
        self.images: list[Any] = []
        """The pictures that the latest cell displayed, as PIL images."""

    # --- what smolagents calls -------------------------------------------------------------

    def send_tools(self, tools: Mapping[str, Callable[..., Any]]) -> None:
        """Make the agent's tools callable in the kernel; called before each run."""
        self._tools = dict(tools)
        new = {
            name: str(getattr(tool, "description", "") or "")
            for name, tool in tools.items()
            if name not in self._sent
        }
        wrong = [name for name in new if not name.isidentifier()]
        if wrong:
            raise UsageError(f"a tool's name must be a Python name: {', '.join(wrong)}")
        source = "\n".join(
            f"_tools[{name!r}] = _tool({name!r}, {doc!r})" for name, doc in new.items()
        )
        if source:
            self._run_ours(source)
            self._sent.update(new)

    def send_variables(self, variables: Mapping[str, Any]) -> None:
        """Define variables in the kernel; called with the agent's state before each run."""
        if variables:
            sent = json.dumps(values.encode(dict(variables)))
            self._run_ours(f"globals().update(_values.decode(_json.loads({sent!r})))")

    def __call__(self, code_action: str) -> CodeOutput:
        """Run a cell.

        Raises
        ------
        CellFailed
            The code raised, took too long, or cost the kernel.
        """
        self._start()
        self._answer.clear()
        result = self._execute(code_action)
        logs = _printed(result)[: self._max_logs]
        self.state["_print_outputs"] = logs
        self.images = _pictures(result)
        if self._answer:
            return CodeOutput(output=self._answer[0], logs=logs, is_final_answer=True)
        if not result.ok:
            raise CellFailed(_reason(result))
        return CodeOutput(output=_last_value(result), logs=logs, is_final_answer=False)

    def cleanup(self) -> None:
        """End the kernel; called by the agent's own ``cleanup``. Safe to call twice."""
        self._session.close_sync()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

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

    def _start(self) -> None:
        """Start the kernel with the first thing that is asked of it."""
        if not self._started:
            self._started = True
            self._define()

    def _define(self) -> None:
        source = Path(values.__file__).read_text(encoding="utf-8")
        self._check(self._execute(_PRELUDE % repr(json.dumps(source))))

    def _run_ours(self, source: str) -> None:
        self._start()
        self._check(self._execute(source))

    def _execute(self, source: str) -> CellResult:
        result = self._session.execute_sync(source, timeout_s=self._cell_seconds)
        if result.status == "dead":  # the next cell gets a fresh kernel, with the tools in it
            self._started = False
            self._sent.clear()
            tools, self._tools = self._tools, {}
            self.send_tools(tools)
        return result

    @staticmethod
    def _check(result: CellResult) -> None:
        if not result.ok:
            raise CellFailed(_reason(result))

    def _call_tool(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call one of the agent's tools; in a thread of the host, for code in the kernel."""
        tool = self._tools.get(name)
        if tool is None:
            raise NameError(f"there is no tool {name!r}")
        result = tool(*args, **kwargs)
        if name == "final_answer":
            self._answer.append(result)
            return None
        return _plain(result)


def _named(call: Callable[[str, list[Any], dict[str, Any]], Any]) -> Callable[..., Any]:
    """Give the bound method the plain signature that a host tool has."""

    def smolagents_tool(name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call a tool of the agent on the host."""
        return call(name, args, kwargs)

    return smolagents_tool


def _plain(value: Any) -> Any:
    """Return what an ``AgentText`` or ``AgentImage`` wraps; anything else as it is."""
    raw = getattr(value, "to_raw", None)
    return raw() if callable(raw) else value


def _printed(result: CellResult) -> str:
    return plain(
        "".join(o.get("text", "") for o in result.outputs if o.get("output_type") == "stream")
    )


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
        return f"The kernel was lost, all variables are gone: {error.evalue}"
    short = cut_traceback(error)
    return plain(f"{short.before}\n{short.message}".strip())
