"""What an exported notebook carries so that it runs in plain Jupyter, without this package.

The exporter copies the source of these functions into the module beside the notebook
(:mod:`kernel_agent.notebook.setup_cell`), so each of them stands alone: standard library and
IPython only, imported inside.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def final_answer(value: object, note: str = "") -> None:  # noqa: ARG001 - it stands above
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
    refuse = globals().get("no_answer")  # defined where the run refused something
    if refuse and (reason := refuse(value, shell.user_ns["In"][-1])):
        raise TypeError(reason)
    final_answer.__dict__["cell"] = shell.execution_count
    if isinstance(value, str):
        shell.display_pub.publish({"text/plain": value})
    else:
        shell.display_pub.publish(*shell.display_formatter.format(value))


class Outputs(dict[int, str]):
    """What each step of the run had shown, and with ``code`` what it had run."""

    def __init__(self, texts: dict[int, str], codes: dict[int, str]) -> None:
        super().__init__(texts)
        self.code = codes.__getitem__

    def is_whole(self, step: int) -> bool:
        """Whether all of a step's output is here."""
        return step in self


class ToolError(Exception):
    """A host tool failed in the run."""


def failure(told: str) -> Exception:
    """Return what a tool raised, as the run's cell saw it, from its type and its message."""
    import ast
    import builtins

    kind, _, message = told.partition(": ")
    known = getattr(builtins, kind, None)
    args: list[Any] = [message] if message else []
    if kind == "KeyError":  # it shows its argument as Python writes it
        try:
            key = ast.literal_eval(message)
        except Exception:  # noqa: S110 - it is a sentence
            pass
        else:
            args = [key] if type(key) in (str, int, float, bool, type(None)) else args
    if isinstance(known, type) and issubclass(known, Exception):
        try:
            return known(*args)
        except TypeError:  # UnicodeDecodeError takes five arguments
            pass
    return ToolError(message if kind == "ToolError" else told)


def revived(value: Any) -> Any:
    """Rebuild a value from the form in which the run kept it.

    Raises
    ------
    ValueError
        The run kept only a description of it.
    """
    import base64
    import datetime as dt
    import decimal
    import importlib
    import io

    if isinstance(value, list):
        return [revived(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "$" not in value:
        return {key: revived(item) for key, item in value.items()}
    if value["$"] == "left out":
        raise ValueError(f"the run kept only a description of this {value['type']}")

    def data(name: str) -> bytes:
        return base64.b64decode(value[name])

    def array() -> Any:
        np = importlib.import_module("numpy")
        return np.frombuffer(data("base64"), value["dtype"]).reshape(value["shape"]).copy()

    def table() -> Any:
        return importlib.import_module("pyarrow.ipc").open_stream(data("arrow")).read_pandas()

    forms: dict[str, Callable[[], Any]] = {
        "float": lambda: float(value["text"]),
        "bytes": lambda: data("base64"),
        "tuple": lambda: tuple(map(revived, value["items"])),
        "set": lambda: set(map(revived, value["items"])),
        "frozenset": lambda: frozenset(map(revived, value["items"])),
        "dict": lambda: {revived(key): revived(item) for key, item in value["items"]},
        "date": lambda: dt.date.fromisoformat(value["text"]),
        "datetime": lambda: dt.datetime.fromisoformat(value["text"]),
        "time": lambda: dt.time.fromisoformat(value["text"]),
        "timedelta": lambda: dt.timedelta(seconds=float(value["text"])),
        "decimal": lambda: decimal.Decimal(value["text"]),
        "fraction": lambda: importlib.import_module("fractions").Fraction(value["text"]),
        "array": array,
        "table": table,
        "series": lambda: table().iloc[:, 0],
        "image": lambda: importlib.import_module("PIL.Image").open(io.BytesIO(data("png"))),
    }
    return forms[value["$"]]()


def compared(value: Any) -> Any:
    """Return an argument as it is compared: floats to twelve digits, whatever its library.

    Raises
    ------
    ValueError
        The run did not keep it as it was.
    """
    import decimal
    import fractions
    import pathlib
    import uuid
    from collections.abc import Collection, Mapping

    methods: dict[str, Callable[[], Any]] = {
        "to_csv": lambda: value.to_csv(float_format="%.12g"),
        "getbands": lambda: [value.size, value.convert("RGBA").tobytes()],
        "total_seconds": lambda: f"{value.total_seconds():.12g} s",
        "isoformat": lambda: f"{value.isoformat()}",
        "tolist": lambda: compared(value.tolist()),
    }
    kinds: dict[Any, Callable[[], Any]] = {
        (pathlib.PurePath, uuid.UUID): lambda: repr(str(value)),
        str: lambda: str.__repr__(value),
        (bytes, bytearray): lambda: repr(bytes(value)),
        Mapping: lambda: [[compared(key), compared(item)] for key, item in value.items()],
        (set, frozenset): lambda: sorted(map(str, map(compared, value))),
        Collection: lambda: [compared(item) for item in value],
        float: lambda: f"{value:.12g}",
        int: lambda: int.__repr__(value),
        (type(None), decimal.Decimal, fractions.Fraction): lambda: repr(value),
    }
    forms = [methods[name] for name in methods if hasattr(value, name)]
    forms += [kinds[kind] for kind in kinds if isinstance(value, kind)]
    if not forms or (isinstance(value, str) and "[secret]" in value):
        raise ValueError("the run kept it in another form")
    return forms[0]()


def replayed(name: str, recorded: list[dict[str, Any]]) -> Callable[..., object]:
    """Return a function that gives what the host tool gave in the run.

    A call gets the first unused result that was recorded for the same arguments. Where arguments
    cannot be compared, it gets the next unused one.
    """
    from itertools import chain

    unused = list(recorded)

    def asked(args: Any, kwargs: Any) -> Any:
        try:
            return compared([args, sorted(kwargs.items())])
        except ValueError:
            return None

    def then(recorded: dict[str, Any]) -> Any:
        try:
            return asked(revived(recorded["args"]), revived(recorded["kwargs"]))
        except ValueError:
            return None

    def call(*args: object, **kwargs: object) -> object:
        if not unused:
            raise RuntimeError(f"{name} was called {len(recorded)} times in the run, not more")
        now = asked(args, kwargs)
        same = (n for n, each in enumerate(unused) if now and then(each) == now)
        unknown = (n for n, each in enumerate(unused) if not now or not then(each))
        place = next(chain(same, unknown), None)
        if place is None:
            raise RuntimeError(f"{name} was not called with these arguments in the run")
        result = unused.pop(place)
        if "error" not in result:
            return revived(result["result"])
        raise failure(str(result["error"]))

    call.__name__ = name
    call.__dict__["map"] = lambda *items: [call(*each) for each in zip(*items, strict=False)]
    return call


def delegated(recorded: list[dict[str, object]]) -> Callable[..., object]:
    """Return a function that gives what agents on the host answered in the run.

    A task gets the first unused answer that was recorded for it, else the next one whose task the
    run kept only a description of.
    """
    unused: list[dict[str, Any]] = list(recorded)

    def call(task: str, _data: object = None, **_options: object) -> object:
        if not unused:
            raise RuntimeError(f"{len(recorded)} tasks were delegated in the run, not more")
        known = [(r["args"] or [r["kwargs"].get("task")])[0] for r in unused]
        cut = [n for n, each in enumerate(known) if "[secret]" in each or type(each) is not str]
        if task not in known and not cut:
            raise RuntimeError("this task was not delegated in the run")
        result = unused.pop(known.index(task) if task in known else cut[0])
        if "error" in result:
            raise RuntimeError(str(result["error"]).partition(": ")[2])
        return revived(result["result"])

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
