"""Outputs that widgets take: those of a message whose id an Output widget names. Pure.

``with widgets.Output():`` sends nothing aside itself. It writes the cell's id into the widget's
state, and the front end puts what comes then into the widget (as nbclient does and
JupyterLab: https://ipywidgets.readthedocs.io/en/stable/examples/Output%20Widget.html). Here no
widget is shown, so such outputs are marked: the model reads them, the notebook leaves them out.
"""

from __future__ import annotations

from typing import Any

MAX_WIDGETS = 1_000
MAX_ID = 200  # characters of a widget's or message's id
COMMS = ("comm_open", "comm_msg", "comm_close")


class OutputWidgets:
    """The Output widgets of a kernel, and the message whose outputs each takes at the moment."""

    def __init__(self) -> None:
        self._takes: dict[str, str] = {}

    def listen(self, kind: str, content: dict[str, Any]) -> None:
        """Take a message about a widget; any may be anything.

        Parameters
        ----------
        kind
            One of :data:`COMMS`.
        content
            The message's.
        """
        widget = content.get("comm_id")
        data = content.get("data")
        state = data.get("state") if isinstance(data, dict) else None
        if not isinstance(widget, str) or len(widget) > MAX_ID:
            return
        if kind == "comm_close":
            self._takes.pop(widget, None)
        elif isinstance(state, dict):
            if kind == "comm_open" and state.get("_model_name") == "OutputModel":
                self._begin(widget)
            named = state.get("msg_id")
            if widget in self._takes and isinstance(named, str) and len(named) <= MAX_ID:
                self._takes[widget] = named

    def _begin(self, widget: str) -> None:
        if len(self._takes) < MAX_WIDGETS:
            self._takes[widget] = ""

    def take(self, message_id: str) -> bool:
        """Whether a widget takes the outputs that answer this message."""
        return bool(message_id) and message_id in self._takes.values()
