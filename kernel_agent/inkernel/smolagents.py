"""Tools and variables of a smolagents agent in the kernel.

Set up by the first cell of an adapter (:mod:`kernel_agent.adapters`). Which tools such an agent has
may change from run to run, and those of a session do not: so the host has one function that calls
any of them and one that gives a variable, and the names that cells use are made here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

CALL = "agent_tool"
"""The host function that calls a tool: its name, arguments, keyword arguments."""

GIVE = "agent_variable"
"""The host function that gives the value of a variable."""

FINAL = "final_answer"


class FinalAnswer(BaseException):
    """Ends the cell, past every ``except Exception``."""


class Foreign:
    """The tools, bound to their names again before each cell, which may have rebound them.

    Parameters
    ----------
    shell
        IPython's.
    """

    def __init__(self, shell: Any) -> None:
        self._namespace = shell.user_ns
        self._call = self._namespace.pop(CALL)
        self._give = self._namespace.pop(GIVE)
        self._tools: dict[str, Callable[..., Any]] = {}
        shell.events.register("pre_run_cell", lambda _info: self._namespace.update(self._tools))

    def define(self, tools: Mapping[str, str]) -> None:
        """Define exactly these tools, each with its description; called by the host's cells."""
        for name in self._tools.keys() - tools.keys():
            self._namespace.pop(name, None)
        self._tools = {name: tool(name, doc, self._call) for name, doc in tools.items()}

    def give(self, names: Sequence[str]) -> None:
        """Set variables to what the host has under their names; called by the host's cells."""
        for name in names:
            try:
                self._namespace[name] = self._give(name)
            except Exception as error:
                _say(error, f"the result of {GIVE}", f"the variable {name}")
                raise


def begin(shell: Any) -> None:
    """Set the kernel up; called by the host's first cell, which passes IPython's shell."""
    # What a cell's last line assigns is its output, as in smolagents' own executor.
    shell.ast_node_interactivity = "last_expr_or_assign"
    shell.kernel_agent_foreign = Foreign(shell)


def tool(name: str, doc: str, host: Callable[..., Any]) -> Callable[..., Any]:
    """Return a plain function that calls one of the agent's tools.

    Parameters
    ----------
    name, doc
        The tool's name and description.
    host
        Calls it: given its name, arguments and keyword arguments.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            result = host(name, list(args), kwargs)
        except Exception as error:
            _say(error, CALL, name)
            raise
        if name == FINAL:
            raise FinalAnswer
        return result

    call.__name__ = call.__qualname__ = name
    call.__doc__ = doc
    return call


def _say(error: Exception, ours: str, theirs: str) -> None:
    """Make an error name the tool as the cell knows it, not the host's function behind it."""
    error.args = tuple(
        arg.replace(ours, theirs) if isinstance(arg, str) else arg for arg in error.args
    )
