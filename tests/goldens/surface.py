"""The public surface: names, signatures, settings with their defaults, errors, records, formats."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import inspect
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import kernel_agent
from goldens.normal import normal
from kernel_agent import Budget, Config, ExitStatus, Run, ScriptedModel, Session
from kernel_agent import errors as errors_module
from kernel_agent import formats as formats_module
from kernel_agent import records as records_module

READ = """
import json, sys, kernel_agent
before = set(sys.modules)
print(sorted(n for n in before if n.startswith("kernel_agent")))
"""
REPLIES = {
    "fenced": ["Look.\n```python\nprint(1)\n```", "no code", "```python\nx = (\n```",
               "```r\nx\n```",
               "```python\na = 1\n```\n```python\nb = 2\n```", "```python\nopen", ""],
    "envelope": ['{"thought": "x", "code": "print(1)"}', '{"thought": "x"}', "{", '{"code": 5}',
                 '{"thought": "x", "code": "x = ("}', '```json\n{"code": "1"}\n```'],
    "tool": ["no call", '{"name": "python", "arguments": {"code": "1"}}'],
    "json": ["no call", '{"name": "f", "arguments": {"x": 1}}', "f(1)"],
    "auto": ["```python\n1\n```"],
    "nothing": ["x"],
}  # fmt: skip


def surface(folder: Path) -> dict[str, str]:
    """Return the recordings by file name."""
    texts = {
        "package.txt": _lines(_package()),
        "signatures.txt": _lines(_signatures()),
        "settings.txt": _lines(_fields(Config) | _fields(Budget)),
        "errors.txt": _lines(_errors()),
        "records.txt": _lines(_records()),
        "formats.txt": _lines(_formats()),
        "distribution.txt": _lines(_distribution()),
    }
    return {f"surface/{name}": normal(text, folder) for name, text in texts.items()}


def _lines(lines: Iterable[str] | dict[str, str]) -> str:
    if isinstance(lines, dict):
        lines = (f"{name}: {value}" for name, value in lines.items())
    return "\n".join(lines) + "\n"


def _package() -> Iterator[str]:
    yield f"__all__ = {kernel_agent.__all__}"
    for name in kernel_agent.__all__:
        value = getattr(kernel_agent, name)
        yield f"{name}: {type(value).__name__} {getattr(value, '__qualname__', '')}"
    yield f"__version__: {type(kernel_agent.__version__).__name__}"
    yield f"load_ipython_extension{inspect.signature(kernel_agent.load_ipython_extension)}"
    for status in ExitStatus:
        yield f"ExitStatus.{status.name} = {status.value!r}, exit code {status.exit_code}"
    done = subprocess.run([sys.executable, "-c", READ], capture_output=True, text=True, check=True,
                          env=os.environ)  # fmt: skip
    yield f"imported with the package: {done.stdout.strip()}"


def _signatures() -> Iterator[str]:
    for kind in (Session, Run, Budget, ScriptedModel):
        yield f"{kind.__name__}{inspect.signature(kind)}"
        for name, value in inspect.getmembers(kind):
            if name.startswith("_"):
                continue
            if callable(value):
                flag = "async " if inspect.iscoroutinefunction(value) else ""
                yield f"  {flag}{name}{inspect.signature(value)}"
            elif isinstance(value, property):
                yield f"  {name}: {value.fget.__annotations__.get('return')}"
    for value in (kernel_agent.export, kernel_agent.verify, kernel_agent.tool):
        yield f"{value.__name__}{inspect.signature(value)}"
    for name in ("parse", "get_format", "format_names", "register"):
        yield f"formats.{name}{inspect.signature(getattr(formats_module, name))}"


def _fields(kind: Any) -> dict[str, str]:
    return {
        f"{kind.__name__}.{field.name}": f"{field.type} = {_default(field)}"
        for field in dataclasses.fields(kind)
    }


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default_factory is not dataclasses.MISSING:
        return f"{field.default_factory.__name__}()"
    return "required" if field.default is dataclasses.MISSING else repr(field.default)


def _errors() -> Iterator[str]:
    for name, kind in sorted(vars(errors_module).items()):
        if isinstance(kind, type) and issubclass(kind, Exception) and not name.startswith("_"):
            bases = ", ".join(base.__name__ for base in kind.__bases__)
            code = getattr(kind, "exit_code", None)
            yield f"{name}({bases}) exit code {code} {inspect.signature(kind.__init__)}"


RECORDS = """
    Usage Image ToolCall Message RequestOptions Reply Code Call Calls Final CellError Decision
    Delegated HostCall Answer Variable Changes CellResult Observation Retry DataFile Given
    RunStart Step Visit RunStop FormatChange Condensation Undone ReplyText Acting Output
    Question Notice
"""


def _records() -> Iterator[str]:
    for name in RECORDS.split():
        yield name
        for field in dataclasses.fields(getattr(records_module, name)):
            yield f"  {field.name}: {field.type} = {_default(field)}"


def _formats() -> Iterator[str]:
    yield f"names: {formats_module.format_names()}"
    for name, replies in REPLIES.items():
        for reply in replies:
            yield f"--- {name} {json.dumps(reply)}"
            try:
                yield repr(formats_module.parse(reply, name))
            except errors_module.FormatError as error:
                yield f"FormatError {error.kind}: {error}\ncode: {error.code!r}\n{error.feedback}"
            except errors_module.KernelAgentError as error:
                yield f"{type(error).__name__}: {error}"


def _distribution() -> Iterator[str]:
    told = importlib.metadata.distribution("kernel-agent")
    for point in sorted(told.entry_points, key=lambda p: (p.group, p.name)):
        yield f"{point.group} {point.name} -> {point.attr}"
        point.load()
    yield f"extras: {sorted(told.metadata.get_all('Provides-Extra') or ())}"
