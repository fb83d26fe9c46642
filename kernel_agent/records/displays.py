"""Displays as Jupyter shows them in the end: changed by a later cell, or taken by a widget. Pure.

``h = display(x, display_id=True)`` in one cell and ``h.update(y)`` in another changes what stands
below the first; so does ``display(y, display_id=…)`` with its id, which shows it anew as well. The
trace is only appended to, so the later step's outputs hold the change, as a display that says which
one it updates; the model reads it there, since that is where it happened. A renderer of a whole
session asks here and gets the outputs as Jupyter shows them: the earlier display changed, and an
update shows nothing below the later cell.

Ids and texts are a kernel's: they name nothing but its own displays.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kernel_agent.records.cell import OutputDict
from kernel_agent.records.reading import standing_steps
from kernel_agent.records.trace import Record, Step

SHOWN, UPDATES, CAPTURED = "display_id", "updates", "captured"
MAX_SAME = 100  # displays of one id that are changed
MAX_IDS = 10_000
MAX_CHARS = 100_000_000  # of text in cells that may still be changed


def add_sign(metadata: dict[str, Any], sign: str, value: str) -> dict[str, Any]:
    """Return a display's metadata with a sign.

    Parameters
    ----------
    metadata
        As the kernel sent it.
    sign
        ``SHOWN`` with the display's id, ``UPDATES`` with the id of the one that it changes, or
        ``CAPTURED`` where a widget has taken it.
    value
        Of the sign.
    """
    ours = metadata.get("kernel_agent")
    given = ours if isinstance(ours, dict) else {}
    return {**metadata, "kernel_agent": {**given, sign: value}}


class Displays:
    """The displays of the cells so far that a later one may change."""

    def __init__(self) -> None:
        self._places: dict[str, list[tuple[int, list[OutputDict], int]]] = {}
        self._chars = 0
        self.changed: dict[int, list[OutputDict]] = {}
        """The outputs of the cells that a later one has changed, by the cells' numbers."""

    def take(self, number: int, outputs: Iterable[OutputDict]) -> list[OutputDict]:
        """Return a cell's outputs as they are shown, and apply their changes to earlier cells.

        Parameters
        ----------
        number
            The cell's, as the caller counts.
        outputs
            As recorded.
        """
        shown: list[OutputDict] = []
        for output in outputs:
            changes, again = _read_sign(output, UPDATES), _read_sign(output, SHOWN)
            if changes is not None:
                self._change(changes, output)
                continue
            if again is not None:
                self._change(again, output)
            if not _is_captured(output):
                shown.append(output)
        self._remember(number, shown)
        return shown

    def _remember(self, number: int, shown: list[OutputDict]) -> None:
        ids = [(_read_sign(output, SHOWN), at) for at, output in enumerate(shown)]
        ids = [(each, at) for each, at in ids if each is not None]
        self._chars += sum(map(_chars, shown)) if ids else 0
        if self._chars > MAX_CHARS:
            return
        for each, at in ids:
            if each is not None and (each in self._places or len(self._places) < MAX_IDS):
                places = self._places.setdefault(each, [])
                if len(places) < MAX_SAME:
                    places.append((number, shown, at))

    def _change(self, display_id: str, output: OutputDict) -> None:
        new = {key: output.get(key, {}) for key in ("data", "metadata")}
        for number, outputs, at in self._places.get(display_id, ()):
            outputs[at] = {**outputs[at], **new}
            self.changed[number] = outputs


def apply_updates(records: Sequence[Record]) -> list[Record]:
    """Return the records of a session with displays as its later steps have changed them.

    Parameters
    ----------
    records
        A trace, in order. Steps that were undone, and those of delegated runs, change nothing.
    """
    displays, steps = Displays(), standing_steps(records)
    shown = {
        id(step): displays.take(number, step.result.outputs)
        for number, step in enumerate(steps)
        if step.result is not None
    }
    return [
        _with_outputs(record, shown[id(record)])
        if isinstance(record, Step) and id(record) in shown
        else record
        for record in records
    ]


def _with_outputs(step: Step, outputs: list[OutputDict]) -> Step:
    if step.result is None or step.result.outputs == tuple(outputs):
        return step
    return dataclasses.replace(
        step, result=dataclasses.replace(step.result, outputs=tuple(outputs))
    )


def is_figure(output: OutputDict) -> bool:
    """Return whether an output has a picture in it."""
    data = output.get("data")
    return isinstance(data, Mapping) and ("image/png" in data or "image/jpeg" in data)


def _read_sign(output: OutputDict, sign: str) -> str | None:
    named = _ours(output).get(sign)
    return named if isinstance(named, str) else None


def _is_captured(output: OutputDict) -> bool:
    return _read_sign(output, CAPTURED) is not None


def _ours(output: OutputDict) -> Mapping[str, Any]:
    metadata = output.get("metadata")
    ours = metadata.get("kernel_agent") if isinstance(metadata, Mapping) else None
    return ours if isinstance(ours, Mapping) else {}


def _chars(output: OutputDict) -> int:
    data = output.get("data")
    values = data.values() if isinstance(data, Mapping) else (output.get("text"),)
    return sum(len(value) if isinstance(value, str) else 100 for value in values)
