"""A model behind any endpoint that speaks the OpenAI chat-completions protocol.

One call is: make the request's bytes (:mod:`.request`), post them (:mod:`.endpoint`), read the
reply as it comes (:mod:`.stream`), count what it cost (:mod:`.usage`); and when that fails
(:mod:`.errors`), try again where that makes sense. The client library's own ways to do this are
not used, for reasons that were measured or met:

* its typed ``create()`` walks the whole history against type hints, 0.2 ms CPU a message a call;
* its typed chunks cost ten times what reading the bytes does;
* its retries are silent and cannot repair a stream that breaks off in the middle. Ours are
  reported to the user one by one, and cancelling ends them at once.

How the server wants to be asked is learned from its complaints (:mod:`.dialect`); how often it is
asked again is :mod:`.retries`' part.
"""

from __future__ import annotations

import asyncio
import copy
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace

from kernel_agent.errors import ContextLengthError, ModelError, UsageError
from kernel_agent.formats import Notation, closes
from kernel_agent.models.base import ModelDefaults
from kernel_agent.models.dialect import MAY_MEAN_UNKNOWN, Ways
from kernel_agent.models.endpoint import Endpoint
from kernel_agent.models.errors import EndpointError, context_limit
from kernel_agent.models.listing import WAIT_S, window_in
from kernel_agent.models.request import MessageCache, request_body
from kernel_agent.models.retries import Transport, Tries
from kernel_agent.models.stream import ReplyReader, unfinished_error
from kernel_agent.models.usage import Prices, usage_of, window_met
from kernel_agent.records import Event, Json, Message, Notice, Reply, RequestOptions

USAGE_WAIT_S = 5.0
"""Wait for the token counts, which come in a chunk of their own after the last text."""

END_WAIT_S = 0.1
"""Wait for the end of a body that said it is done: reading it saves the connection."""

_LENGTHS = {"max_tokens", "max_completion_tokens", "max_new_tokens", "n_predict", "num_predict"}
"""Fields with which a user bounds a reply: then its end says nothing of the window."""


NEVER_SAYS = 3
"""Replies, all without a reason, that show that an endpoint never gives one."""


@dataclass(kw_only=True)
class _Seen:
    """An endpoint's record: was it asked for its list, has it answered, given finish reasons."""

    listed: bool = False
    answered: bool = False
    finishes: bool = False
    unsaid: int = 0


class OpenAIModel(ModelDefaults):
    """A model behind an OpenAI-compatible endpoint.

    One object serves any number of runs, side by side, in one event loop.

    Parameters
    ----------
    name
        The model's name as the endpoint knows it.
    base_url
        Where the endpoint is, up to and including ``/v1``. None: ``OPENAI_BASE_URL``, else OpenAI.
    api_key
        None: ``OPENAI_API_KEY``. An endpoint other than OpenAI's may do without.
    headers
        Sent with every request. Their values are treated as secrets in messages.
    transport
        Time limits, retries, and whether replies come piece by piece.
    prices
        What the model costs; None leaves the cost unknown.
    accepts_images
        None: by the model's name (:func:`sees_images`), no when the name is not known.
    extra_body
        Further fields of the request, such as ``temperature`` or ``max_tokens``.

    Raises
    ------
    UsageError
        The caller's fault: no name, or an address, key or header that cannot be sent.

    Examples
    --------
    >>> model = OpenAIModel("qwen2.5-coder", base_url="http://localhost:11434/v1")
    >>> model.accepts_images
    False
    """

    writes_prose = True
    """It can be asked for a summary."""

    endpoint: Endpoint
    """The endpoint and the connections to it."""

    def __init__(
        self,
        name: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        transport: Transport | None = None,
        prices: Prices | None = None,
        accepts_images: bool | None = None,
        extra_body: Mapping[str, Json] | None = None,
    ) -> None:
        if not name.strip():
            raise UsageError("the model has no name: give one with --model")
        self.name = name
        self.accepts_images = sees_images(name) if accepts_images is None else accepts_images
        self._transport = transport or Transport()
        self.endpoint = Endpoint(
            base_url=base_url,
            api_key=api_key,
            headers=headers,
            timeout_s=self._transport.timeout_s,
            connect_timeout_s=self._transport.connect_timeout_s,
        )
        self._prices = prices
        self._ways = Ways(extra_body)
        self._seen = _Seen()
        self._cache = MessageCache()

    async def prepare(self) -> None:
        """Import the client library, in a thread, so that the first call need not wait for it.

        Called by the session while the kernel starts. What fails here fails again, and is then
        raised, in :meth:`complete`.
        """
        with suppress(ModelError):
            await self.endpoint.connect()

    async def learn_window(self) -> None:
        """Ask the endpoint once for its list, which may say how much the model holds.

        Called by the session while the kernel starts, unless the user has said how long a
        conversation may become. Nothing here fails a run, or holds it up for long.
        """
        if not self._seen.listed:
            self._seen.listed = True
            with suppress(ModelError):
                listed = await self.endpoint.list_models(wait_s=WAIT_S)
                self.window = window_in(listed, self.name)

    async def complete(
        self,
        messages: Sequence[Message],
        options: RequestOptions,
        on_event: Callable[[Event], None],
    ) -> Reply:
        """Return the model's reply; see :class:`~kernel_agent.models.base.Model`.

        Raises
        ------
        ModelError
            The endpoint's fault, or a key that is missing.
        ContextLengthError
            The conversation is longer than the model accepts.
        """
        tries = Tries(self._transport)
        streamed = self._streams
        while True:
            try:
                return await self._ask(messages, options, on_event, streamed=streamed)
            except EndpointError as error:
                if given_way := self._give_way(error, messages, options, streamed=streamed):
                    on_event(Notice(text=f"{self.endpoint} {given_way}"))
                    streamed = self._streams and not tries.plainly
                    continue
                again = tries.after(error, streamed=streamed, answered=self._seen.answered)
                if again is None:
                    raise self._final_error(error, tries, options, streamed=streamed) from None
                if again.notice:
                    on_event(Notice(text=self.endpoint.tell(again.notice)))
                streamed = self._streams and not tries.plainly
                await asyncio.sleep(again.pause_s)

    def once(self, notations: Iterable[Notation] = ()) -> OpenAIModel:
        """Return this model without retries, for requests that try out a notation and may fail.

        It shares the connections, which stay this object's to close, and what is learned beside.
        """
        model = copy.copy(self)
        vars(model).update(
            _transport=replace(self._transport, max_retries=0),
            _ways=self._ways.measuring(notations),
        )
        return model

    def use(self, notations: Iterable[Notation]) -> None:
        """Ask in these notations from now on; called when they were tried out, or remembered."""
        self._ways.notations |= frozenset(notations)

    async def close(self) -> None:
        """Close the connections."""
        await self.endpoint.close()

    # --- one try -------------------------------------------------------------------------------

    @property
    def _streams(self) -> bool:
        return self._transport.stream and not self._ways.omits("stream")

    async def _ask(
        self,
        messages: Sequence[Message],
        options: RequestOptions,
        on_event: Callable[[Event], None],
        *,
        streamed: bool,
    ) -> Reply:
        head = {"model": self.name, **self._ways.head(options, stream=streamed)}
        needs = frozenset(self._ways.needs)
        body = request_body(head, messages, self._cache, images=self.accepts_images, needs=needs)
        reader = ReplyReader(on_event)
        try:
            async with self.endpoint.post(body) as response:
                self._seen.answered = True  # if only the head of it
                reader.media_type = response.headers.get("content-type", "")
                await _read(response.aiter_bytes(), reader)
        except (EndpointError, ModelError):
            raise
        except Exception as error:
            # Broad because the client's errors, and those of the two transports that it may rest
            # on, have no base in common; any other error is raised as it is.
            fault = self.endpoint.read_error(error, model=self.name)
            if fault is None:
                raise
            if not reader.whole:
                raise fault from error
        said = reader.finish()
        usage = usage_of(reader.draft.usage, messages, said, self._prices, options)
        window = None if _LENGTHS & head.keys() else window_met(said, usage)
        reply = self._judge(said, streamed=reader.is_stream)
        self._ways.note_success(options)
        return replace(reply, usage=usage, window_tokens=window)

    def _judge(self, reply: Reply, *, streamed: bool) -> Reply:
        """Return a whole reply, or one marked as cut off, as far as that can be known.

        Raises
        ------
        EndpointError
            It was ended without the word with which this endpoint ends its replies.
        """
        if reply.finish_reason is not None:
            self._seen.finishes = True
            return reply
        self._seen.unsaid += 1
        if closes(reply) and not (streamed and self._seen.finishes):
            return reply
        if streamed and (self._seen.finishes or self._seen.unsaid < NEVER_SAYS):
            raise unfinished_error()
        return replace(reply, finish_reason="length")

    # --- when it failed ------------------------------------------------------------------------

    def _give_way(
        self,
        error: EndpointError,
        messages: Sequence[Message],
        options: RequestOptions,
        *,
        streamed: bool,
    ) -> str | None:
        """Adapt to a server's complaint and return a note for the user; None where it cannot."""
        given_way = self._ways.give_way(error, options, streamed=streamed)
        if given_way is not None:
            return given_way
        has_images = any(message.images for message in messages)
        complains = error.status in MAY_MEAN_UNKNOWN and error.kind is ModelError
        if complains and self.accepts_images and has_images and _NO_IMAGES.search(error.details):
            self.accepts_images = False
            return "does not accept pictures: left out"
        return None

    def _final_error(
        self, error: EndpointError, tries: Tries, options: RequestOptions, *, streamed: bool
    ) -> ModelError:
        advice = error.advice
        if options.tools and _NO_TOOLS.search(error.details):
            advice = "use --format fenced, which needs no native calls"
        elif error.trouble == "timed out" and not streamed and not tries.plainly:
            advice = "raise request_timeout_s, or let replies come piece by piece (stream)"
        what = self.endpoint.tell(tries.summary() if error.retry else error.what)
        message = f"{what}: {advice}"
        if error.kind is ContextLengthError:
            limit_tokens, used_tokens = context_limit(error.details)
            return ContextLengthError(
                message,
                status_code=error.status,
                limit_tokens=limit_tokens,
                used_tokens=used_tokens,
            )
        return error.kind(message, status_code=error.status)


async def _read(chunks: AsyncGenerator[bytes, None], reader: ReplyReader) -> None:
    """Feed a body to a reader until it ends, or for a moment longer than the reply needs."""
    now = asyncio.get_running_loop().time
    with suppress(TimeoutError):
        async with asyncio.timeout(None) as limit, aclosing(chunks):
            async for chunk in chunks:
                reader.feed(chunk)
                if reader.draft.full:
                    return
                if reader.done:
                    limit.reschedule(now() + END_WAIT_S)
                elif reader.whole:
                    limit.reschedule(now() + USAGE_WAIT_S if reader.draft.ended else None)


_NO_TOOLS = re.compile(r"\btools?\b|function.?call", re.IGNORECASE)

_NO_IMAGES = re.compile(r"image|vision|multi-?modal|content.{0,30}(string|type)", re.IGNORECASE)

_SEES_IMAGES = re.compile(
    r"gpt-4o(?!.*(audio|search|transcribe|tts))|gpt-4\.1|gpt-4-turbo|gpt-5|\bo[134](?!-mini)\b"
    r"|\bo4-mini|claude-(3|opus|sonnet|haiku|[4-9])|gemini-(?!.*embedding)|gemma-?3(?!.*[-:]1b)"
    r"|pixtral|llava|vision|[-_]vl\b|\d-?vl\b|llama-?4",
    re.IGNORECASE,
)


def sees_images(name: str) -> bool:
    """Whether a model of this name is known to accept pictures.

    Cautious: an unknown name is taken for one that does not, since the text of an observation
    describes its pictures. A wrong yes costs one request, after which pictures are left out.

    >>> sees_images("gpt-4o-mini"), sees_images("qwen2.5-vl-7b"), sees_images("qwen2.5-coder")
    (True, True, False)
    """
    return bool(_SEES_IMAGES.search(name))
