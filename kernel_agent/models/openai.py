"""A model behind any endpoint that speaks the OpenAI chat-completions protocol.

One call is: make the request's bytes (:mod:`.wire`), post them (:mod:`.endpoint`), read the reply
as it comes (:mod:`.replies`), count what it cost (:mod:`.usage`); and when that fails
(:mod:`.failures`), try again where that makes sense. The client library's own ways to do this are
not used, for reasons that were measured or met:

* its typed ``create()`` walks the whole history against type hints, 0.2 ms CPU a message a call;
* its typed chunks cost ten times what reading the bytes does;
* its retries are silent and cannot repair a stream that breaks off in the middle. Ours are told
  to the user one by one, and cancelling ends them at once.

An option that the server turns out not to know is left out from then on, and messages are written
as it turns out to want them; each is said once.
"""

from __future__ import annotations

import asyncio
import copy
import random
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace

from kernel_agent.errors import ContextLengthError, ModelError, UsageError
from kernel_agent.models.endpoint import Endpoint
from kernel_agent.models.failures import EndpointError, context_limit
from kernel_agent.models.replies import ReplyReader
from kernel_agent.models.usage import Prices, usage_of
from kernel_agent.models.wire import (
    MessageCache,
    Need,
    request_body,
    request_options,
    without_keywords,
)
from kernel_agent.records import Event, Json, Message, Notice, Reply, RequestOptions

TOO_MANY = 429
MAX_BACKOFF_S = 60.0

RATE_BACKOFF = 8.0
"""How many times longer to wait when there are too many requests and the server does not say how
long: rates are counted by the minute, which four waits from 4 s on span."""

USAGE_WAIT_S = 5.0
"""How long to wait for the token counts, which come in a chunk of their own after the last text."""

END_WAIT_S = 0.1
"""How long to wait for the end of a body that said it is done: reading it saves the connection."""


class OpenAIModel:
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
    timeout_s
        Longest silence: until the reply begins, and between two pieces of it.
    connect_timeout_s
        Longest wait for a connection.
    max_retries
        How often a failed request is made again.
    backoff_s
        Wait before the first retry; doubled for each further one, with jitter, at most a minute;
        eight times that when there are too many requests. What the server asks for, in a header or
        in words, comes before it.
    stream
        Ask for the reply piece by piece.
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

    def __init__(
        self,
        name: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 300.0,
        connect_timeout_s: float = 10.0,
        max_retries: int = 3,
        backoff_s: float = 0.5,
        stream: bool = True,
        prices: Prices | None = None,
        accepts_images: bool | None = None,
        extra_body: Mapping[str, Json] | None = None,
    ) -> None:
        if not name.strip():
            raise UsageError("the model has no name: give one with --model")
        self.name = name
        self.accepts_images = sees_images(name) if accepts_images is None else accepts_images
        self.endpoint = Endpoint(
            base_url=base_url,
            api_key=api_key,
            headers=headers,
            timeout_s=timeout_s,
            connect_timeout_s=connect_timeout_s,
        )
        self._max_retries = max_retries
        self._backoff_s = backoff_s
        self._stream = stream
        self._prices = prices
        self._extra_body = dict(extra_body or {})
        self._left_out: set[str] = set()  # options that this server turned out not to know
        self._needs: set[Need] = set()  # what it turned out to want of messages
        self._keywords: set[str] = set()  # of schemas, which it turned out not to know
        self._cache = MessageCache()

    async def prepare(self) -> None:
        """Import the client library, in a thread, so that the first call need not wait for it.

        Called by the session while the kernel starts. What fails here fails again, and is then
        raised, in :meth:`complete`.
        """
        with suppress(ModelError):
            await self.endpoint.connect()

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
        failed = 0
        while True:
            try:
                return await self._ask(messages, options, on_event)
            except EndpointError as error:
                if given_way := self._give_way(error, messages, options):
                    on_event(Notice(text=f"{self.endpoint} {given_way}"))
                    continue
                failed += 1
                if not error.retry or failed > self._max_retries:
                    raise self._last(error, failed, options) from None
                pause_s = self._pause_s(error, failed)
                on_event(self._retry_notice(error, failed, pause_s))
                await asyncio.sleep(pause_s)

    def once(self) -> OpenAIModel:
        """Return this model without retries and with its own notes on what the server knows.

        For requests that may fail; it shares the connections, which stay this object's to close.
        """
        model = copy.copy(self)
        vars(model).update(_max_retries=0, _left_out=set())
        return model

    async def close(self) -> None:
        """Close the connections."""
        await self.endpoint.close()

    # --- one try -------------------------------------------------------------------------------

    async def _ask(
        self,
        messages: Sequence[Message],
        options: RequestOptions,
        on_event: Callable[[Event], None],
    ) -> Reply:
        head = self._head(options)
        needs = frozenset(self._needs)
        body = request_body(head, messages, self._cache, images=self.accepts_images, needs=needs)
        reader = ReplyReader(on_event)
        try:
            async with self.endpoint.post(body) as response:
                reader.media_type = response.headers.get("content-type", "")
                await _read(response.aiter_bytes(), reader)
        except (EndpointError, ModelError):
            raise
        except Exception as error:
            # Broad because the client's errors, and those of the two transports that it may rest
            # on, have no base in common; whatever is not one of theirs is raised as it is.
            fault = self.endpoint.read_error(error, model=self.name)
            if fault is None:
                raise
            if not reader.whole:
                raise fault from error
        reply = reader.finish()
        return replace(reply, usage=usage_of(reader.draft.usage, messages, reply, self._prices))

    def _head(self, options: RequestOptions) -> dict[str, Json]:
        """Return every field of the request but the messages."""
        asked: Json = request_options(options)
        if self._keywords:
            asked = without_keywords(asked, self._keywords)
        head: dict[str, Json] = {"model": self.name, **asked, **self._extra_body}
        if self._stream:
            head |= {"stream": True, "stream_options": {"include_usage": True}}
        return {name: value for name, value in head.items() if name not in self._left_out}

    # --- when it failed ------------------------------------------------------------------------

    def _give_way(
        self, error: EndpointError, messages: Sequence[Message], options: RequestOptions
    ) -> str | None:
        """Do as the server wants where that is possible, and say so; None where it is not."""
        if error.status not in _MAY_MEAN_UNKNOWN or error.kind is not ModelError:
            return None
        for need, wanted in _WANTED.items():
            if need not in self._needs and wanted.search(error.details):
                self._needs.add(need)
                return f"{_TOLD[need]}: done from now on"
        unknown = set(_KEYWORD.findall(error.details)) - self._keywords
        if unknown and (options.tools or options.response_format):
            self._keywords |= unknown
            return f"does not know {', '.join(sorted(unknown))} in schemas: left out"
        left_out = self._leave_out(error, messages, options)
        return left_out and f"does not accept {left_out}: left out"

    def _leave_out(
        self, error: EndpointError, messages: Sequence[Message], options: RequestOptions
    ) -> str | None:
        """Do without what the server complains about; None when that is not optional."""
        head = self._head(options)
        for option, complaint in _OPTIONAL.items():
            if option in head and complaint.search(error.details):
                self._left_out |= {option, "stream_options"} if option == "stream" else {option}
                return option
        has_images = any(message.images for message in messages)
        if self.accepts_images and has_images and _NO_IMAGES.search(error.details):
            self.accepts_images = False
            return "pictures"
        return None

    def _pause_s(self, error: EndpointError, failed: int) -> float:
        if error.retry_after_s is not None:
            return error.retry_after_s
        # Half of the wait is random, so that clients that failed together do not return together.
        jitter = random.uniform(0.5, 1.0)  # noqa: S311 - it spreads load and guards nothing
        backoff_s = self._backoff_s * (RATE_BACKOFF if error.status == TOO_MANY else 1.0)
        return float(min(backoff_s * 2.0 ** (failed - 1), MAX_BACKOFF_S) * jitter)

    def _retry_notice(self, error: EndpointError, failed: int, pause_s: float) -> Notice:
        told, tries = self.endpoint.tell(error.what), f"try {failed + 1} of {self._max_retries + 1}"
        return Notice(text=f"{told}: trying again in {pause_s:.2g} s ({tries})")

    def _last(self, error: EndpointError, tries: int, options: RequestOptions) -> ModelError:
        times = f", {tries} times" if tries > 1 else ""
        told = self.endpoint.tell(error.what)
        advice = error.advice
        if options.tools and _NO_TOOLS.search(error.details):
            advice = "use --format fenced, which needs no native calls"
        message = f"{told}{times}: {advice}"
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


_MAY_MEAN_UNKNOWN = {400, 404, 415, 422, 500, 501}

_OPTIONAL = {
    "stream_options": re.compile(r"stream_options|include_usage"),
    "response_format": re.compile(
        r"response.?(format|schema)|json.?schema|structured.?output|grammar", re.IGNORECASE
    ),
    "tool_choice": re.compile(r"tool_choice"),
    "parallel_tool_calls": re.compile(r"parallel.?tool.?(call|use)", re.IGNORECASE),
    "stop": re.compile(r"['\"`]stop['\"`]"),
    "stream": re.compile(r"to stream\b|['\"`]stream['\"`]|streaming.{0,20}not", re.IGNORECASE),
}
"""What a request can do without, and how servers name it when they complain."""

_WANTED: dict[Need, re.Pattern[str]] = {
    "two roles": re.compile(
        r"system (role|messages?|prompt)s? (is |are )?not (be )?supported|roles must alternate"
        r"|only user(, | and )assistant( and tool)? roles are supported"
        r"|does not support '(system|developer)'|invalid message role: system"
        r"|developer instruction is not enabled",
        re.IGNORECASE,
    ),
    "signatures": re.compile(r"missing a .{0,3}thought_?signature", re.IGNORECASE),
    "reasoning": re.compile(
        r"reasoning_content.{0,60}(missing|must be passed back)"
        r"|(missing|requires).{0,3}reasoning_content",
        re.IGNORECASE,
    ),
    "text": re.compile(
        r"content type: <nil>|content.{0,60}valid string|expected a string, got null"
    ),
}
"""How servers say what they want of messages."""

_KEYWORD = re.compile(
    r"""Unknown name \\?"(\$?\w+)\\?" at '(?:tools\[|generation_config\.response_schema)"""
)
"""How Gemini, behind gateways too, says that a schema is more than it knows."""

_TOLD: dict[Need, str] = {
    "two roles": "takes turns of user and assistant only",
    "signatures": "wants a signature on each call",
    "reasoning": "wants reasoning on each reply",
    "text": "wants text beside calls",
}

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
