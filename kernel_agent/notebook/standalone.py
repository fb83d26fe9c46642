"""What an exported notebook carries so that it runs in plain Jupyter, without this package.

The exporter copies the source of these functions into the notebook's first cells
(:mod:`kernel_agent.notebook.environment`), so each of them stands alone: standard library and
IPython only, imported inside.
"""

from __future__ import annotations

from collections.abc import Callable


def final_answer(value: object) -> None:
    """Show the answer; only the first call in a cell counts, as in the run."""
    import sys

    from IPython import get_ipython

    shell = get_ipython()
    if shell is None:
        print(value)
        return
    if final_answer.__dict__.get("cell") == shell.execution_count:
        sys.stderr.write("final_answer was called already; only the first call counts\n")
        return
    final_answer.__dict__["cell"] = shell.execution_count
    if isinstance(value, str):
        shell.display_pub.publish({"text/plain": value})
    else:
        shell.display_pub.publish(*shell.display_formatter.format(value))


class ToolError(Exception):
    """A host tool failed in the run."""


def replayed(name: str, recorded: list[dict[str, object]]) -> Callable[..., object]:
    """Return a function that gives what the host tool gave in the run.

    A call gets the first unused result that was recorded for the same arguments, else the next
    unused one.
    """
    import builtins
    import json

    unused = list(recorded)

    def call(*args: object, **kwargs: object) -> object:
        if not unused:
            raise RuntimeError(f"{name} was called {len(recorded)} times in the run, not more")
        asked = json.dumps([args, kwargs], sort_keys=True, default=str)
        known = [json.dumps([r["args"], r["kwargs"]], sort_keys=True) for r in unused]
        result = unused.pop(known.index(asked) if asked in known else 0)
        if "error" not in result:
            return result["result"]
        kind, _, message = str(result["error"]).partition(": ")
        error = getattr(builtins, kind, None)
        if isinstance(error, type) and issubclass(error, Exception):
            raise error(message)
        raise ToolError(message if kind == "ToolError" else result["error"])

    call.__name__ = name
    call.__dict__["map"] = lambda items: [call(item) for item in items]
    return call
