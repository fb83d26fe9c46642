"""The interface of an action format.

A format is the way in which a model writes down what it wants done, and nothing else: it knows
no kernel, no endpoint and no clock. The loop asks it for the system prompt and the request
options, hands it each reply, and asks it how an earlier step stands in the history. One module a
format, its prompt beside it in ``prompts/``, and a line in the table of
:mod:`kernel_agent.formats` or a call of its ``register``: nothing else knows formats by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kernel_agent.records import Action, Message, Reply, RequestOptions, Step, ToolSchema


class Format(Protocol):
    """The seam between the loop and the way a model writes its actions."""

    name: str
    writes_code: bool
    """Whether its actions are cells; otherwise they are calls of host tools."""

    def system_prompt(self, *, tools: str = "") -> str:
        """Return the fixed first message. ``tools`` is the text of the tool stubs, or empty.

        Called once a run by the session. The same arguments give the same bytes, so that the
        endpoint's prompt cache hits.
        """
        ...

    def options(self, *, tools: Sequence[ToolSchema] = ()) -> RequestOptions:
        """Return the options that every request sends to the endpoint; called for each.

        Parameters
        ----------
        tools
            The host tools. Formats that write code leave them out: their cells call the stubs.
        """
        ...

    def parse(self, reply: Reply) -> Action:
        """Read a reply as one action. Pure; called by the loop on every reply.

        Raises
        ------
        FormatError
            The model's fault. Its ``feedback`` is the text for the model.
        """
        ...

    def write(self, step: Step) -> tuple[Message, ...]:
        """Return a finished step's messages in the history: the action, once, and its observation.

        Called by :mod:`kernel_agent.agent.context` on every request; must be deterministic.
        """
        ...

    def compose(self, *, thought: str, code: str) -> str:
        """Return the text of a reply that this format reads back as ``Code``.

        Called by models that write actions themselves (the offline analyst) and by tests. Formats
        whose actions are not code have no such text and raise :class:`UsageError`.
        """
        ...
