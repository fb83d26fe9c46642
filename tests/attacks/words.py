"""What the parts of the suite speak of: attacks, verdicts and results."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    from attacks.stage import Stage

Category = Literal[
    "read", "write", "network", "process", "kernel-surface", "resource", "host-confusion",
    "persistence", "browser", "host-resource", "next-command",
]  # fmt: skip
CATEGORIES: tuple[Category, ...] = get_args(Category)
BOUNDARY: tuple[Category, ...] = ("read", "write", "network", "process", "kernel-surface")
"""The categories in which a level that isolates must stop every attack."""
HOST: tuple[Category, ...] = ("host-confusion", "host-resource", "next-command")
"""The categories that the host's half of the program stops: the same at every level."""

Verdict = Literal["stopped", "contained", "not stopped", "not run"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


@dataclass(frozen=True, kw_only=True)
class Report:
    """What came back from the kernel when an attack had ended.

    ``ended`` is ``returned`` (with what the function returned as ``text``), ``refused`` (an error
    of the operating system), ``crashed`` (any other error: the attack itself is broken), ``dead``
    (the kernel ended), ``timeout`` or ``silent`` (no report, though the cell ended).
    """

    ended: str
    text: str = ""
    outputs: tuple[dict[str, Any], ...] = ()


Effect = Callable[["Stage", Report], str]
"""Looks at the canaries; returns what was seen of the attack there, or nothing."""


@dataclass(frozen=True, kw_only=True)
class Attack:
    """One attack.

    Parameters
    ----------
    name, category, title
        What it is called, what it belongs to, and what it tries, for a person.
    code
        The source of the function that is sent.
    effect
        How the host sees that it succeeded.
    before
        What the host does beforehand; returns further values for the attack.
    no_control
        Why the attack cannot succeed for an ordinary user without a sandbox, where that is so.
    own_kernel
        Whether it needs a kernel that is used for nothing else, since it may end it.
    timeout_s
        Seconds after which the cell is interrupted, as a session would.
    on_host
        What happens on the host instead of in a cell: a hostile server, table or file meets the
        program. Runs in a process of its own (:mod:`attacks.alone`) in an empty folder.
    """

    name: str
    category: Category
    title: str
    code: str
    effect: Effect
    before: Callable[[Stage], dict[str, Any]] = lambda _: {}
    no_control: str = ""
    own_kernel: bool = False
    timeout_s: float = 20.0
    on_host: Callable[[Path], Awaitable[str]] | None = None


@dataclass(frozen=True, kw_only=True)
class Result:
    """The verdict on one attack at one level, with what was seen and measured of the host."""

    attack: str
    verdict: Verdict
    seen: str
    seconds: float = 0.0
    measured: dict[str, int] = field(default_factory=dict)


CATALOGUE: dict[str, Attack] = {}


def attack(
    category: Category, effect: Effect, **options: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a function into the catalogue; its docstring's first line is the attack's title."""

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        name = function.__name__
        if name in CATALOGUE:
            raise ValueError(f"two attacks are called {name}")
        title = (function.__doc__ or "").strip().splitlines()[0].rstrip(".")
        CATALOGUE[name] = Attack(
            name=name,
            category=category,
            title=title,
            code=source_of(function),
            effect=effect,
            **options,
        )
        return function

    return enter


def host_attack(
    category: Category, effect: Effect, **options: Any
) -> Callable[[Callable[[Path], Awaitable[str]]], Callable[[Path], Awaitable[str]]]:
    """Enter a coroutine function that meets the host's half of the program; see ``Attack``."""

    def enter(function: Callable[[Path], Awaitable[str]]) -> Callable[[Path], Awaitable[str]]:
        name = function.__name__
        if name in CATALOGUE:
            raise ValueError(f"two attacks are called {name}")
        title = (function.__doc__ or "").strip().splitlines()[0].rstrip(".")
        CATALOGUE[name] = Attack(
            name=name, category=category, title=title, code="", effect=effect, on_host=function,
            no_control="no cell takes part: the host meets it itself", **options,
        )  # fmt: skip
        return function

    return enter


def source_of(function: Callable[..., Any]) -> str:
    """Return a function's source without its decorators."""
    source = textwrap.dedent(inspect.getsource(function))
    first = ast.parse(source).body[0]
    assert isinstance(first, ast.FunctionDef)
    return "\n".join(source.splitlines()[first.lineno - 1 :]) + "\n"


def load() -> dict[str, Attack]:
    """Import all modules of attacks; return the catalogue by categories, with the browser's."""
    from importlib import import_module

    here = Path(__file__).parent
    for place in ("cells", "host"):
        for path in sorted((here / place).glob("*.py")):
            if path.stem not in ("__init__", "prelude", "browser"):
                import_module(f"attacks.{place}.{path.stem}")
    from attacks.browse import browser_attacks

    entries = [*CATALOGUE.values(), *browser_attacks()]
    entries.sort(key=lambda entry: CATEGORIES.index(entry.category))
    return {entry.name: entry for entry in entries}
