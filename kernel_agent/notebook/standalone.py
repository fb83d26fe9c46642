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


def delegated(recorded: list[dict[str, object]]) -> Callable[..., object]:
    """Return a function that gives what agents on the host answered in the run.

    A task gets the first unused answer that was recorded for it, else the next unused one.
    """
    from typing import Any

    unused: list[dict[str, Any]] = list(recorded)

    def call(task: str, _data: object = None, **_options: object) -> object:
        if not unused:
            raise RuntimeError(f"{len(recorded)} tasks were delegated in the run, not more")
        known = [(r["args"] or [r["kwargs"].get("task")])[0] for r in unused]
        result = unused.pop(known.index(task) if task in known else 0)
        if "error" in result:
            raise RuntimeError(str(result["error"]).partition(": ")[2])
        return whole(result["result"])

    def outcome(task: str) -> object:
        try:
            return call(task)
        except RuntimeError as error:
            return error

    def over(tasks: Any, data: object = None, **_options: object) -> list[object]:
        if isinstance(tasks, str):
            tasks = [tasks] * (len(data) if isinstance(data, (list, tuple)) else 1)
        return [outcome(task) for task in tasks]

    call.__name__ = "delegate"
    call.__dict__["map"] = over
    return call


def whole(given: object) -> object:
    """Return the value that an agent answered with, from the form in which it is written down."""
    import base64
    import datetime as dt
    import decimal
    import io
    from typing import Any

    def table(form: dict[str, Any]) -> Any:
        import pyarrow as pa

        return pa.ipc.open_stream(base64.b64decode(form["arrow"])).read_all().to_pandas()

    def array(form: dict[str, Any]) -> Any:
        import numpy as np

        items = np.frombuffer(base64.b64decode(form["base64"]), form["dtype"])
        return items.reshape(form["shape"]).copy()

    def image(form: dict[str, Any]) -> Any:
        from PIL import Image

        return Image.open(io.BytesIO(base64.b64decode(form["png"])))

    def items(form: dict[str, Any]) -> list[Any]:
        return [whole(item) for item in form["items"]]

    forms: dict[str, Callable[[dict[str, Any]], Any]] = {
        "table": table,
        "series": lambda form: table(form).iloc[:, 0],
        "array": array,
        "image": image,
        "float": lambda form: float(form["text"]),
        "bytes": lambda form: base64.b64decode(form["base64"]),
        "tuple": lambda form: tuple(items(form)),
        "set": lambda form: set(items(form)),
        "frozenset": lambda form: frozenset(items(form)),
        "dict": lambda form: dict(items(form)),
        "date": lambda form: dt.date.fromisoformat(form["text"]),
        "datetime": lambda form: dt.datetime.fromisoformat(form["text"]),
        "time": lambda form: dt.time.fromisoformat(form["text"]),
        "timedelta": lambda form: dt.timedelta(seconds=float(form["text"])),
        "decimal": lambda form: decimal.Decimal(form["text"]),
    }
    if isinstance(given, list):
        return [whole(item) for item in given]
    if not isinstance(given, dict):
        return given
    if given.get("$") in forms:
        return forms[given["$"]](given)
    return {key: whole(item) for key, item in given.items()}
