"""From output messages to notebook outputs: a cell's outputs, in order, within bounds.

Pure: it takes message contents and holds nbformat dicts. Contents come from a hostile kernel, so
every field is checked for its type before it is kept.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

from kernel_agent.records import (
    ANSWER_MIME,
    CAPTURED,
    OUTPUTS_BYTES,
    SHOWN,
    UPDATES,
    Answer,
    OutputDict,
    add_sign,
    error_output,
    size_in_trace,
    with_words,
)
from kernel_agent.safe import size_text

MAX_TRACE = OUTPUTS_BYTES  # of one cell in the trace; our kernel's cap is 28 M characters
MAX_CELL = 80_000_000  # bytes of memory kept of one cell: fewer items than a line may have
MAX_STREAMS = 16_000_000  # of it text of streams; our kernel sends 1.1 M characters of each
MAX_OUTPUTS = 20_000  # outputs kept of one cell
MAX_SAME = 100  # displays of one id that are updated
MAX_METADATA = 100_000  # bytes of memory of a display's: it says how large a picture is
MAX_ID = 1_000  # characters of a display's id
MAX_SIDE = 1 << 62  # of an answer's shape
MAX_NOTE = 2_000  # characters beside an answer
MAX_DEPTH = 100  # of lists and objects in one output


class Collector:
    """The outputs of one cell.

    Parameters
    ----------
    on_output
        Called with each output as it arrives (text of a stream comes in pieces).
    start
        Outputs that are there already.
    step
        The cell's number, shown as its execution count.
    """

    def __init__(
        self,
        on_output: Callable[[OutputDict], None] | None = None,
        start: Iterable[OutputDict] = (),
        step: int | None = None,
    ) -> None:
        self._on_output = on_output
        self._step = step
        self._outputs: list[OutputDict] = []
        self._texts: dict[int, list[str]] = {}  # pieces of the stream outputs, joined at the end
        self._displays: dict[str, list[int]] = {}
        self._updates: dict[str, list[int]] = {}  # of displays of earlier cells
        self._clear_next = False
        self._size = self._streamed = self._in_trace = 0
        self._shares: dict[int, int] = {}  # of displays that may change, in the trace
        self._left_out = 0
        self._too_large: list[int] = []
        self.answer: Answer | None = None
        for output in start:
            self.add(output)

    def add_message(self, kind: str, content: dict[str, Any]) -> None:
        """Take one output-channel message of the cell.

        Raises
        ------
        KeyError, TypeError, ValueError
            When it is not what its kind promises; the caller counts it as ignored.
        """
        if kind == "stream":
            self.add(
                {"output_type": "stream", "name": _stream_name(content), "text": content["text"]}
            )
        elif kind in ("display_data", "execute_result"):
            self._add_display(kind, content)
        elif kind == "update_display_data":
            self._update(content)
        elif kind == "clear_output":
            self._clear(wait=bool(content.get("wait")))
        elif kind == "error":
            self.add(_error(content))

    def capture(self, kind: str, content: dict[str, Any]) -> None:
        """Take a message whose output goes into a widget; raises as :meth:`add_message` does."""
        if kind == "update_display_data":
            self._update(content)
        elif kind != "clear_output":
            data, metadata = _bundle_output(kind, content)
            metadata = add_sign(metadata, CAPTURED, "widget")
            self.add({"output_type": "display_data", "data": data, "metadata": metadata})

    @property
    def last_error(self) -> OutputDict | None:
        """The last error among the outputs."""
        errors = (o for o in reversed(self._outputs) if o["output_type"] == "error")
        return next(errors, None)

    def add(self, output: OutputDict) -> None:
        """Keep one output, unless the cell has put out more than is kept."""
        if self._clear_next:
            self._clear(wait=False)
        size, chars = _sizes(output)
        streamed = size if output["output_type"] == "stream" else 0
        too_much = self._size + size > MAX_CELL or self._streamed + streamed > MAX_STREAMS
        too_much |= len(self._outputs) >= MAX_OUTPUTS or self._in_trace + chars > MAX_TRACE
        if too_much or not self._has_room(output):
            self._left_out += 1
            return
        self._size += size
        self._streamed += streamed
        if output["output_type"] == "stream":
            self._add_text(output)
        else:
            self._outputs.append(output)
        if self._on_output:
            self._on_output(output)

    def _has_room(self, output: OutputDict) -> bool:
        """Take the room that an output needs in the trace, if there is so much."""
        share = _share(output)
        if self._in_trace + share > MAX_TRACE:
            return False
        self._in_trace += share
        if output["output_type"] != "stream":
            self._shares[len(self._outputs)] = share
        return True

    def leave_out(self, size: int) -> None:
        """Add a note that an output of so many bytes came and was not read."""
        if len(self._too_large) < MAX_OUTPUTS:
            self._too_large.append(size)

    def outputs(self) -> list[OutputDict]:
        """Return the outputs so far, consecutive pieces of one stream joined."""
        for index, pieces in self._texts.items():
            self._outputs[index]["text"] = "".join(pieces)
            pieces[:] = [self._outputs[index]["text"]]
        kept = list(self._outputs)
        if self._left_out:
            text = f"… {self._left_out:,} more outputs were not kept: the cell put out too much …\n"
            kept.append({"output_type": "stream", "name": "stderr", "text": text})
        if self._too_large:
            kept.append({"output_type": "stream", "name": "stderr", "text": self._too_large_note})
        return kept

    @property
    def _too_large_note(self) -> str:
        size, count = size_text(sum(self._too_large)), len(self._too_large)
        what = f"an output of {size} was" if count == 1 else f"{count:,} outputs of {size} were"
        return f"… {what} left out: too large for one output …\n"

    def _add_text(self, output: OutputDict) -> None:
        text = output["text"]
        if not isinstance(text, str):
            raise TypeError("stream text is not text")
        last = len(self._outputs) - 1
        if last in self._texts and self._outputs[last]["name"] == output["name"]:
            self._texts[last].append(text)
            return
        self._outputs.append({**output, "text": ""})
        self._texts[last + 1] = [text]

    def _add_display(self, kind: str, content: dict[str, Any]) -> None:
        data, metadata = _bundle(content)
        display_id = _display_id(content)
        if display_id is not None:
            metadata = add_sign(metadata, SHOWN, display_id)
        output: OutputDict = {"output_type": kind, "data": data, "metadata": metadata}
        if display_id is not None:  # Jupyter changes those of the same id, too
            self._replace(self._displays.get(display_id, ()), output)
        if kind == "execute_result":
            output["execution_count"] = self._step
        self.add(output)
        if ANSWER_MIME in data and self.answer is None:
            self.answer = answer_of(data)
        is_kept = self._outputs and self._outputs[-1] is output
        if is_kept and display_id is not None:
            self._note_place(self._displays, display_id)

    def _note_place(self, places: dict[str, list[int]], display_id: str) -> None:
        same = places.setdefault(display_id, [])
        if len(same) < MAX_SAME:
            same.append(len(self._outputs) - 1)

    def _update(self, content: dict[str, Any]) -> None:
        """Change a display where it stands; one of an earlier cell when all cells are shown."""
        data, metadata = _bundle(content)
        display_id = _display_id(content)
        if display_id is None:
            return
        if display_id in self._displays:
            places, sign = self._displays[display_id], SHOWN
        else:
            places, sign = self._updates.get(display_id, []), UPDATES
        output: OutputDict = {
            "output_type": "display_data", "data": data,
            "metadata": add_sign(metadata, sign, display_id),
        }  # fmt: skip
        self._replace(places, output)
        if not places:
            count = len(self._outputs)
            self.add(output)
            if len(self._outputs) > count:
                self._note_place(self._updates, display_id)

    def _replace(self, places: Iterable[int], output: OutputDict) -> None:
        new = {"data": output["data"], "metadata": output["metadata"]}
        share = 0  # found when it matters: to write takes as long as to read
        for index in places:
            shown = self._outputs[index]
            size, chars = _sizes({**shown, **new})
            more, others = size - _sizes(shown)[0], self._in_trace - self._shares[index]
            too_much = self._size + more > MAX_CELL or others + chars > MAX_TRACE
            share = share or (0 if too_much else _share(output))
            if too_much or others + share > MAX_TRACE:
                self._left_out += 1
                continue
            self._size += more
            self._in_trace, self._shares[index] = others + share, share
            shown.update(new)

    def _clear(self, *, wait: bool) -> None:
        self._clear_next = wait
        if not wait:
            self._outputs, self._texts, self._displays, self._updates = [], {}, {}, {}
            self._shares = {}


def answer_of(data: dict[str, Any]) -> Answer:
    """Read what ``final_answer`` published; the value is plain JSON already."""
    ours = data[ANSWER_MIME]
    described = ours if isinstance(ours, dict) else {}
    text = data.get("text/plain", "")
    sides = described.get("shape")
    given = Answer(
        text=text if isinstance(text, str) else str(text),
        value=described.get("value"),
        kind=str(described.get("kind", "text"))[:100],
        shape=_shape(sides) if isinstance(sides, list) else (),
        note=note[:MAX_NOTE] if isinstance(note := described.get("note"), str) else "",
    )
    return with_words(given)


def _shape(sides: list[Any]) -> tuple[int, ...]:
    return tuple(side for side in sides[:8] if type(side) is int and 0 <= side < MAX_SIDE)


def _display_id(content: dict[str, Any]) -> str | None:
    transient = content.get("transient")
    display_id = transient.get("display_id") if isinstance(transient, dict) else None
    return display_id if isinstance(display_id, str) and len(display_id) <= MAX_ID else None


def _stream_name(content: dict[str, Any]) -> str:
    return "stderr" if content.get("name") == "stderr" else "stdout"


def _bundle(content: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    data, metadata = content["data"], content.get("metadata", {})
    if not isinstance(data, dict) or not isinstance(metadata, dict):
        raise TypeError("display data is not a mapping")
    return dict(data), dict(metadata) if _sizes(metadata)[0] <= MAX_METADATA else {}


def _bundle_output(kind: str, content: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    if kind == "stream":
        return _bundle({"data": {"text/plain": _text_of(content)}})
    if kind == "error":
        error = _error(content)
        lines = error["traceback"] or [f"{error['ename']}: {error['evalue']}"]
        return _bundle({"data": {"text/plain": "\n".join(lines)}})
    return _bundle(content)


def _text_of(content: dict[str, Any]) -> str:
    text = content["text"]
    if not isinstance(text, str):
        raise TypeError("stream text is not text")
    return text


def _error(content: dict[str, Any]) -> OutputDict:
    traceback = content.get("traceback")
    lines = map(str, traceback) if isinstance(traceback, list) else ()
    ename, evalue = str(content.get("ename", "Error")), str(content.get("evalue", ""))
    return error_output(ename, evalue, lines)


def _share(output: OutputDict) -> int:
    """Return the most bytes that an output takes in the trace, its cell's number among them."""
    return size_in_trace(output) + 50


def _sizes(output: OutputDict) -> tuple[int, int]:
    """Return how many bytes of memory an output takes, and how many characters are in it.

    Raises
    ------
    ValueError
        It is nested more deeply than later readers can follow.
    """
    size, chars = sys.getsizeof(output), 0
    waiting: list[tuple[Any, int]] = [(output, 0)]
    while waiting:
        item, depth = waiting.pop()
        if depth >= MAX_DEPTH:
            raise ValueError("an output that is nested too deeply")
        for parts in (item,) if isinstance(item, list) else (item.keys(), item.values()):
            size += sum(map(sys.getsizeof, parts))
            chars += sum(len(part) for part in parts if isinstance(part, str))
            waiting += [(part, depth + 1) for part in parts if isinstance(part, (dict, list))]
    return size, chars
