"""The model seam: one method, ``complete``, from messages to a reply.

The real one speaks to an OpenAI-compatible endpoint; the scripted one plays back a file and is the
fake that ships; the offline analyst follows rules. The loop cannot tell them apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from kernel_agent.records import Event, Message, Reply, RequestOptions


class Model(Protocol):
    """The seam between the loop and whatever writes the actions.

    A model that also writes plain text when asked for it says so with ``writes_prose = True``: it
    is then asked for summaries of long conversations, which are made by rules otherwise.
    """

    name: str
    accepts_images: bool

    async def complete(
        self,
        messages: Sequence[Message],
        options: RequestOptions,
        on_event: Callable[[Event], None],
    ) -> Reply:
        """Return the model's reply to the conversation so far.

        Called by the loop, once a turn and again for each re-asked format. ``on_event`` is given
        ``ReplyText`` pieces while the reply is being written, and a ``Notice`` before each retry.
        Cancelling the task must drop the request at once.

        Raises
        ------
        ModelError
            The endpoint's fault, after the retries that make sense.
        ContextLengthError
            The conversation is longer than the model accepts.
        """
        ...

    async def close(self) -> None:
        """Release connections; called once by the session."""
        ...
