"""The panel in plain ipywidgets, for front ends that cannot load the page's own program.

The same messages, shown with what every front end with widgets has: buttons, disabled text areas,
pictures. Text areas, because they are the one widget that takes text for text: ``HTML`` interprets
it, and ``Label`` hands it to a renderer of formulas.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import Any

import ipywidgets as w

from kernel_agent_extension.content import Note

MAX_LOG = 60_000  # characters; each change sends all of it
MAX_FIGURES = 8
_WIDE = "98%"


class PlainFront:
    """Plain widgets for the messages of :class:`kernel_agent_extension.panel.Panel`.

    Parameters
    ----------
    heard
        Told what was pressed, in the words of the page.
    """

    def __init__(self, heard: Callable[[Any], None]) -> None:
        self.shows_page = False
        self._heard = heard
        self._asked: list[Note] = []
        self._log_text = ""
        self._state = {"task": "", "level": "", "status": "Starting", "spent": ""}
        self._head = _area(3, "About the run")
        self._log = _area(18, "Steps of the run")
        self._figures = w.VBox([])
        self._stop = _button("Stop", lambda: heard({"do": "stop"}), style="danger")
        self._undo = _button("Undo step", lambda: heard({"do": "undo"}))
        self._reason = w.Text(placeholder="Reason, if you deny", layout=w.Layout(width="260px"))
        self._cell = w.Textarea(rows=8, layout=w.Layout(width=_WIDE))
        self._question = _area(2, "What is asked")
        approve = _button("Approve", lambda: self._decide(allowed=True), style="primary")
        self._edit = _button("Edit, then run", self._begin_editing)
        deny = _button("Deny", lambda: self._decide(allowed=False))
        answers = w.HBox([approve, self._edit, deny, self._reason])
        self._rest = w.Checkbox(indent=False, layout=w.Layout(width=_WIDE))
        self._asking = w.VBox([self._question, self._cell, answers, self._rest])
        self._asking.layout.display = "none"
        buttons = w.HBox([self._stop, self._undo])
        self._whole = w.VBox([self._head, buttons, self._log, self._figures, self._asking])
        self.model_id: str = self._whole.model_id
        heard({"do": "hello", "view": "plain"})

    def send(self, message: dict[str, Any]) -> None:
        """Show a message; called by the panel's thread."""
        if "for" in message:
            self._log_text = ""
            self._undo.layout.display = "" if message.get("undo") else "none"
        for note in message["notes"]:
            self._show(note)
        self._log.value = self._log_text[-MAX_LOG:]
        state = self._state
        about = f"{state['level']} · {state['status']}\n{state['spent']}"
        self._head.value = f"{state['task']}\n{about}"

    def close(self) -> None:
        """Close every widget, their layouts and styles too."""
        _close(self._whole)

    def _show(self, note: Note) -> None:
        show = getattr(self, f"_show_{note['op']}", None)
        if show is not None:
            show(note)

    def _show_run(self, note: Note) -> None:
        level = note["level"]
        self._state["task"] = note["task"].replace("\n", " ")
        sandbox = "NOT SANDBOXED" if level == "none" else f"Sandbox: {level}"
        self._state["level"] = " · ".join((sandbox, *note.get("eased", ())))
        self._state["status"] = "Thinking" if note["begun"] else "Starting"

    def _show_text(self, _note: Note) -> None:
        self._state["status"] = "Writing"

    def _show_act(self, note: Note) -> None:
        self._state["status"] = "Running the cell"
        title = "changed by you" if "was" in note else note["thought"]
        self._write(f"--- Step {note['step']} ---\n{title}\n")
        if note.get("code"):
            self._write(_indent(note["code"]))
        if "was" in note:
            self._write(f"The model had written:\n{_indent(note['was']['code'])}")

    def _show_out(self, note: Note) -> None:
        kind = note["kind"]
        if kind == "picture":
            self._write("[figure, below]\n")
            self._show_picture(note)
        elif kind == "table":
            self._write(_table_text(note))
        elif kind == "error":
            self._write(f"{note['title']}\n")
        elif kind == "stream":
            self._write(note["text"], ends=False)
        else:
            self._write(f"{note['text']}\n")

    def _show_picture(self, note: Note) -> None:
        kind = note["type"].removeprefix("image/")
        image = w.Image(value=base64.b64decode(note["data"]), format=kind)
        image.layout.max_width = "100%"
        kept = [*self._figures.children, image]
        for old in kept[:-MAX_FIGURES]:
            _close(old)
        self._figures.children = kept[-MAX_FIGURES:]

    def _show_step(self, note: Note) -> None:
        self._state["status"] = "Thinking"
        self._write(f"({'done' if note['ok'] else note['status'] or 'failed'})\n\n")

    def _show_note(self, note: Note) -> None:
        self._write(f"! {note['text']}\n")

    def _show_book(self, note: Note) -> None:
        self._write(f"Notebook: {note['path']}\n")

    def _show_spent(self, note: Note) -> None:
        names = ("steps", "s", "tokens")
        values = (note["steps"], note["seconds"], note["tokens"])
        parts = [
            f"{value:,}{'' if cap is None else f'/{cap:,g}'} {name}"
            for value, cap, name in zip(values, note["caps"], names, strict=False)
        ]
        if "cost" in note:
            cap = note["caps"][3]
            parts.append(f"${note['cost']:.4f}{'' if cap is None else f'/{cap:g}'}")
        self._state["spent"] = " · ".join(parts)

    def _show_end(self, note: Note) -> None:
        self._state["status"] = note["words"]
        self._stop.disabled = True
        said = note["answer"] or "\n".join(part for part in (note["why"], note["partial"]) if part)
        below = f"{note['note']}\n" if note["note"] else ""
        self._write(f"\n{'Answer' if note['answer'] else 'The run ended'}\n{said}\n{below}")

    def _write(self, text: str, *, ends: bool = True) -> None:
        if ends and not self._log_text.endswith("\n"):
            self._log_text += "\n"
        self._log_text = (self._log_text + text)[-2 * MAX_LOG :]

    # --- questions -----------------------------------------------------------------------------

    def _show_ask(self, note: Note) -> None:
        self._asked.append(note)
        self._show_question()

    def _show_told(self, note: Note) -> None:
        self._asked = [asked for asked in self._asked if asked["id"] != note["id"]]
        if note.get("said"):
            self._write(f"{note['said']}\n")
        self._show_question()

    def _show_question(self) -> None:
        self._asking.layout.display = "" if self._asked else "none"
        if not self._asked:
            self._state["status"] = "Running the cell"
            return
        first = self._asked[0]
        self._state["status"] = "Waits for you"
        what = "Run this cell?" if first["kind"] == "cell" else "Make this call?"
        self._question.value = f"{what}\n{first['reason']}"
        self._rest.description, self._rest.value = first["rest"], False
        self._cell.value = first["code"]
        self._cell.disabled = True
        self._edit.layout.display = "" if first["kind"] == "cell" else "none"

    def _begin_editing(self) -> None:
        self._cell.disabled = False

    def _decide(self, *, allowed: bool) -> None:
        if not self._asked:
            return
        said: dict[str, Any] = {
            "do": "decide",
            "id": self._asked[0]["id"],
            "allowed": allowed,
            "reason": "" if allowed else self._reason.value,
            "standing": self._rest.value,
        }
        if allowed and not self._cell.disabled:
            said["edited"] = self._cell.value
        self._reason.value = ""
        self._heard(said)


def _area(rows: int, name: str) -> w.Textarea:
    area = w.Textarea(rows=rows, disabled=True, layout=w.Layout(width=_WIDE))
    area.tooltip = name
    return area


def _button(label: str, press: Callable[[], None], *, style: str = "") -> w.Button:
    button = w.Button(description=label, button_style=style)
    button.on_click(lambda _button: press())
    return button


def _indent(code: str) -> str:
    return "".join(f"    {line}\n" for line in code.split("\n"))


def _table_text(note: Note) -> str:
    lines = [
        [re.sub(r"\s+", " ", cell[0] if isinstance(cell, list) else cell)[:30] for cell in line]
        for line in (*note["head"], *note["body"])
    ]
    width = max((len(line) for line in lines), default=0)
    wide = [max((len(line[k]) for line in lines if k < len(line)), default=0) for k in range(width)]
    text = "".join(
        "  ".join(cell.rjust(size) for cell, size in zip(line, wide, strict=False)) + "\n"
        for line in lines
    )
    return text + (f"{note['below']}\n" if note["below"] else "")


def _close(widget: w.Widget) -> None:
    for child in getattr(widget, "children", ()):
        _close(child)
    for part in ("layout", "style"):
        beside = getattr(widget, part, None)
        if isinstance(beside, w.Widget):
            beside.close()
    widget.close()
