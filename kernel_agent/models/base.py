"""The model seam: one method, ``complete``, from messages to a reply, and facts about the model.

The real one speaks to an OpenAI-compatible endpoint; the scripted one plays back a file and is the
fake that ships; the offline analyst follows rules. The loop cannot tell them apart.

A model that a user writes needs ``complete`` and ``close``. It may subclass :class:`ModelDefaults`,
which has the rest but the name, or be any object with these two: then :func:`as_model` adds what it
lacks, once, where it enters a session.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from kernel_agent.errors import UsageError
from kernel_agent.records import Event, Message, ModelWindow, Reply, RequestOptions


class Model(Protocol):
    """The seam between the loop and the model that writes the actions."""

    name: str
    """The model's name in the trace."""

    accepts_images: bool
    """Whether it is sent pictures."""

    writes_prose: bool
    """Whether it writes plain text when asked for it: it is then asked for the summaries of long
    conversations, which are made by rules otherwise."""

    answers_no_prompts: str
    """The reason why it cannot answer prompts from cells; empty when it can."""

    window: ModelWindow | None
    """What it holds at most, where that is known: it decides how long a conversation may become."""

    @property
    def endpoint(self) -> object:
        """The model's address; empty for one that works in this process."""
        ...

    async def prepare(self) -> None:
        """Load what the first call would wait for; called by the session while the kernel starts.

        What fails here fails again, and is then raised, in :meth:`complete`.
        """
        ...

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


OPTIONAL = (
    "name", "accepts_images", "writes_prose", "answers_no_prompts", "window", "endpoint", "prepare",
)  # fmt: skip
"""The members of a model that have a default."""


class ModelDefaults:
    """Defaults for the optional members of a model; a base class."""

    accepts_images = False
    writes_prose = False
    answers_no_prompts = ""
    window: ModelWindow | None = None
    endpoint: object = ""

    async def prepare(self) -> None:
        """Do nothing: there is nothing to load."""


class Lent(ModelDefaults):
    """A model lent by another session, which prepares and closes it.

    Parameters
    ----------
    model
        The owner's.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self.name = model.name
        self.accepts_images = model.accepts_images
        self.writes_prose = model.writes_prose
        self.answers_no_prompts = model.answers_no_prompts
        self.window = model.window
        self.endpoint = model.endpoint

    async def complete(
        self,
        messages: Sequence[Message],
        options: RequestOptions,
        on_event: Callable[[Event], None],
    ) -> Reply:
        """Ask the owner's model; see :meth:`Model.complete`."""
        return await self._model.complete(messages, options, on_event)

    async def close(self) -> None:
        """Do nothing: its owner closes it."""


class _Completed(Lent):
    """A user's model, with a default for each member that it lacks."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.name = type(model).__name__
        self.close = model.close  # type: ignore[method-assign]
        vars(self).update({name: getattr(model, name) for name in OPTIONAL if hasattr(model, name)})


def as_model(given: Model) -> Model:
    """Return a model that has every member: the given one, if it does.

    This is the one place where a model is asked whether it has a member. Called by the session
    with a model that a user has written, perhaps with ``complete`` and ``close`` alone.

    Raises
    ------
    UsageError
        The caller's: it has no ``complete`` or no ``close``.

    Examples
    --------
    >>> class Short:
    ...     complete = close = None
    >>> made = as_model(Short())
    >>> made.name, made.accepts_images
    ('Short', False)
    """
    if not (hasattr(given, "complete") and hasattr(given, "close")):
        raise UsageError(f"a model is a name or has complete and close; got {type(given).__name__}")
    return given if all(hasattr(given, name) for name in OPTIONAL) else _Completed(given)
