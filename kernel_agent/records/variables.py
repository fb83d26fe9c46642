"""The kernel's variables as the host knows them, from each cell's report of changes.

Pure. The report is made in the kernel (:mod:`kernel_agent.inkernel.variables`) and rides on the
reply that every cell has anyway. It comes from a hostile kernel: names that are none are dropped,
texts are cut to one short line, and what it claims is shown to the model and used for nothing
else.
"""

from __future__ import annotations

import builtins
import keyword
from collections.abc import Iterable, Iterator
from typing import Any

from kernel_agent.records.cell import Changes, Variable
from kernel_agent.records.trace import Given
from kernel_agent.safe import one_line

MAX_NAME = 60  # characters
MAX_LISTED = 200  # of each kind of change that are read from one report
MAX_KNOWN = 2000  # variables that are remembered
MAX_LINE = 400  # characters of the line under an observation
QUIET = frozenset({"module", "imported"})
"""Types that are known, but not worth telling: the model sees its own imports."""

RESERVED = frozenset({"outputs", "final_answer"})


def read_changes(report: Any) -> Changes | None:
    """Read a kernel's report; None when it is not a valid one.

    Parameters
    ----------
    report
        ``{"added": [[name, type, shape], …], "changed": …, "removed": [name, …], "more": n}``.
    """
    if not isinstance(report, dict):
        return None
    more = report.get("more")
    return Changes(
        added=tuple(_variables(report.get("added"))),
        changed=tuple(_variables(report.get("changed"))),
        removed=tuple(name for name in _items(report.get("removed")) if is_name(name)),
        more=more if type(more) is int and 0 < more < 10**9 else 0,
    )


def _variables(items: Any) -> Iterator[Variable]:
    for item in _items(items):
        if isinstance(item, list) and len(item) == 3 and all(isinstance(x, str) for x in item):
            name, kind, shape = item
            if is_name(name):
                yield Variable(name=name, type=one_line(kind, 40), shape=one_line(shape, 40))


def _items(items: Any) -> list[Any]:
    return items[:MAX_LISTED] if isinstance(items, list) else []


def is_name(name: Any) -> bool:
    """Whether something is a name that a variable can have, and short enough to show."""
    return (
        isinstance(name, str)
        and len(name) <= MAX_NAME
        and name.isidentifier()
        and not keyword.iskeyword(name)
    )


def merge(first: Changes | None, second: Changes | None) -> Changes | None:
    """Return two changes, one after the other, as one."""
    if first is None or second is None or second.fresh:
        return second or first
    added = {v.name: v for v in first.added}
    changed = {v.name: v for v in first.changed}
    removed = dict.fromkeys(first.removed)
    for variable in (*second.added, *second.changed):
        where = added if variable.name in added else changed
        if variable.name in removed:
            del removed[variable.name]
        elif variable.name not in changed and variable in second.added:
            where = added
        where[variable.name] = variable
    for name in second.removed:
        changed.pop(name, None)
        if added.pop(name, None) is None:
            removed[name] = None
    return Changes(
        added=tuple(added.values()),
        changed=tuple(changed.values()),
        removed=tuple(removed),
        more=first.more + second.more,
        fresh=first.fresh,
    )


def changes_line(changes: Changes | None, *, max_chars: int = MAX_LINE) -> str:
    """Return the changes as one line for the model, or empty when none is worth telling.

    Examples
    --------
    >>> changes_line(Changes(added=(Variable(name="n", type="int"),), removed=("old",)))
    '[variables: new n int; removed old]'
    """
    if changes is None:
        return ""
    parts = [
        f"{word} {', '.join(names)}"
        for word, names in (
            ("new", [describe(v) for v in changes.added if v.type not in QUIET]),
            ("changed", [describe(v) for v in changes.changed if v.type not in QUIET]),
            ("removed", list(changes.removed)),
        )
        if names
    ]
    if changes.more:
        parts.append(f"and {changes.more} more")
    if changes.fresh:
        parts.insert(0, "the kernel is a new one, without what cells made")
    hidden = RESERVED & {v.name for v in (*changes.added, *changes.changed)}
    parts += [f"{n} now hides the built-in {n}: `del {n}` brings it back" for n in sorted(hidden)]
    line = "; ".join(parts)
    if len(line) > max_chars - 13:
        line = line[: max_chars - 14].rstrip() + "…"
    return f"[variables: {line}]" if line else ""


def source_of(given: Iterable[Given]) -> str:
    """Return the code that sets variables of the user's, its imports first and once.

    The kernel runs it, and the notebook again.
    """
    lines = list(dict.fromkeys(line for g in given for line in g.source.split("\n") if line))
    imports = [line for line in lines if line.startswith(("import ", "from "))]
    settings = [line for line in lines if line not in imports]
    return "\n".join([*sorted(imports), *([""] if imports else []), *settings])


def describe(variable: Variable) -> str:
    """Return a variable as it is listed: name, type, shape."""
    if variable.type == "function":
        return f"{variable.name}()"
    return " ".join(filter(None, (variable.name, variable.type, variable.shape)))


class Variables:
    """The variables that live now, and in which step each was set or changed last."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Variable, int]] = {}

    def apply(self, changes: Changes | None, step: int) -> None:
        """Apply the changes of a step, or of a person after it."""
        if changes is None:
            return
        if changes.fresh:
            self._known.clear()
        for name in changes.removed:
            self._known.pop(name, None)
        for variable in (*changes.added, *changes.changed):
            self._known.pop(variable.name, None)  # the latest change stands last
            if len(self._known) < MAX_KNOWN:
                self._known[variable.name] = (variable, step)

    def settle(self, changes: Changes | None, step: int) -> None:
        """Apply the report of a kernel that has played earlier steps again, after an undo.

        What is as it was known to be keeps its step; all else is of ``step``.
        """
        if changes is None or not changes.fresh:
            self.apply(changes, step)
            return
        there = {v.name: v for v in (*changes.added, *changes.changed)}
        self._known = {n: known for n, known in self._known.items() if there.get(n) == known[0]}
        new = tuple(v for name, v in there.items() if name not in self._known)
        self.apply(Changes(added=new), step)

    def clear(self) -> None:
        """Forget all: the kernel is gone."""
        self._known.clear()

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def __len__(self) -> int:
        return len(self._known)

    @property
    def names(self) -> frozenset[str]:
        """Every name that code in the kernel can use without defining it."""
        return frozenset(self._known) | RESERVED | frozenset(dir(builtins))

    @property
    def told(self) -> list[str]:
        """The names that are worth telling, the latest change first."""
        known = reversed(self._known.values())
        return [variable.name for variable, _ in known if variable.type not in QUIET]

    def listing(self, *, max_chars: int) -> str:
        """Return the variables, the latest change first: name, type, shape and step.

        Older ones are counted when there is no room for them.
        """
        known = (self._known[name] for name in self.told)
        told = [f"{describe(variable)} (step {step})" for variable, step in known]
        if not told:
            return "none"
        kept = list(_fitting(told, max_chars))
        more = len(told) - len(kept)
        return ", ".join(kept) + (f", and {more} older ones (see dir())" if more else "")


def _fitting(texts: Iterable[str], room: int) -> Iterator[str]:
    for text in texts:
        room -= len(text) + 2
        if room < 0:
            return
        yield text
