r"""A model that plays back replies, from a file or as given: the fake that ships.

The file is JSON lines, one reply a line::

    {"content": "Thought…\n```python\n1 + 1\n```"}
    {"content": null, "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]}
    {"content": "…", "usage": {"prompt_tokens": 9, "completion_tokens": 3}, "delay_s": 0.5}
    {"content": "…", "for": "the northern region"}

Further fields: ``finish_reason`` (``"length"`` means cut off) and ``reasoning`` (or
``reasoning_content``). A reply with ``for`` is played to conversations whose first message of the
user contains that text, and to no others; such a conversation is played no other replies. So a
script can say what each of several agents at work side by side answers. Usage that is not given is
estimated from the text. It never loops: a script that runs out is an error, which is what an
endpoint that went away is.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kernel_agent.errors import InputError, ModelError, fault_of
from kernel_agent.models.base import ModelDefaults
from kernel_agent.models.draft import Draft
from kernel_agent.models.usage import Prices, usage_of
from kernel_agent.records import Event, Json, Message, Reply, ReplyText, RequestOptions, Usage

PIECES = 4
"""In how many pieces a reply is shown, so that a live view has something to follow."""

MAX_DELAY_S = 86_400


@dataclass(frozen=True, kw_only=True)
class _Line:
    """A line of the script: the reply, its usage as written, and the delay before it."""

    reply: Reply
    usage: Json = None
    delay_s: float = 0.0


class ScriptedModel(ModelDefaults):
    """Plays back replies in order.

    Parameters
    ----------
    replies
        Each a :class:`~kernel_agent.records.Reply`, the text of one, or a mapping with the fields
        of a line of the file. Taken one by one, so an endless generator will do; ``for`` is heeded
        in lists and tuples.
    name
        What the trace calls it.
    source
        Where the replies come from, for the message when there are no more.
    prices
        What a token costs, as for any model; None leaves the cost unknown.
    accepts_images
        Whether it is sent pictures.
    keep_requests
        Keep what it was sent in :attr:`requests`. Off, so that a long run costs no memory.

    Examples
    --------
    >>> model = ScriptedModel(["final_answer(42)"])
    >>> reply = asyncio.run(model.complete([], RequestOptions(), lambda event: None))
    >>> reply.content, reply.finish_reason
    ('final_answer(42)', 'stop')
    """

    def __init__(
        self,
        replies: Iterable[Reply | str | Mapping[str, Json]],
        name: str = "scripted",
        *,
        source: str = "the script",
        prices: Prices | None = None,
        accepts_images: bool = False,
        keep_requests: bool = False,
    ) -> None:
        self.name = name
        self.accepts_images = accepts_images
        self.requests: list[tuple[Message, ...]] = []
        self._keyed = _by_key(replies if isinstance(replies, list | tuple) else ())
        self._replies = (reply for reply in replies if not (self._keyed and _key(reply)))
        self._source = source
        self._prices = prices
        self._keep_requests = keep_requests
        self._played = 0

    @classmethod
    def from_file(
        cls, path: str | Path, *, prices: Prices | None = None, keep_requests: bool = False
    ) -> ScriptedModel:
        """Read a script, all of it, so that a bad line is known before anything runs.

        Raises
        ------
        InputError
            The caller's fault: the file is missing, empty, or a line of it is no reply.
        """
        lines = _read_lines(Path(path))
        replies = [_as_mapping(text, f"line {number} of {path}") for number, text in lines]
        if not replies:
            raise InputError(f"{path} holds no replies: write one JSON object a line")
        for (number, _), reply in zip(lines, replies, strict=True):
            _as_line(reply, f"line {number} of {path}")
        name = f"scripted:{Path(path).name}"
        return cls(replies, name, source=str(path), prices=prices, keep_requests=keep_requests)

    async def complete(
        self,
        messages: Sequence[Message],
        options: RequestOptions,
        on_event: Callable[[Event], None],
    ) -> Reply:
        """Return the next reply; see :class:`~kernel_agent.models.base.Model`.

        Raises
        ------
        ModelError
            The script has no reply left.
        InputError
            The caller's fault: something given as a reply is not one.
        """
        if self._keep_requests:
            self.requests.append(tuple(messages))
        line = self._next_line(messages)
        # Also without a delay: a loop that never waits for anything could not be interrupted.
        await asyncio.sleep(line.delay_s)
        for piece in _pieces(line.reply):
            on_event(piece)
        if line.reply.usage != Usage():
            return line.reply
        usage = usage_of(line.usage, messages, line.reply, self._prices, options)
        return replace(line.reply, usage=usage)

    async def close(self) -> None:
        """No-op: there is nothing open."""

    def _next_line(self, messages: Sequence[Message]) -> _Line:
        asked = next((m.content for m in messages if m.role == "user"), "")
        key = next((key for key in self._keyed if key in asked), "")
        try:
            given = next(self._keyed[key] if key else self._replies)
        except StopIteration:
            if key:
                raise ModelError(
                    f"the script has no reply left for {key!r}: add a line to {self._source}"
                ) from None
            raise ModelError(
                f"the script has no reply left after {self._played}: add a line to {self._source}"
            ) from None
        self._played += 1
        return _as_line(given, f"reply {self._played} of {self._source}")


def _key(reply: Reply | str | Mapping[str, Json]) -> str:
    return str(reply.get("for") or "") if isinstance(reply, Mapping) else ""


def _by_key(
    replies: Sequence[Reply | str | Mapping[str, Json]],
) -> dict[str, Iterator[Reply | str | Mapping[str, Json]]]:
    """Return the replies that are for certain conversations, by what those are known by."""
    keys = dict.fromkeys(filter(None, map(_key, replies)))
    return {key: iter([r for r in replies if _key(r) == key]) for key in keys}


def _read_lines(path: Path) -> list[tuple[int, str]]:
    """Return the lines that are not blank, each with its number."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            return [(number, text) for number, text in enumerate(file, 1) if text.strip()]
    except UnicodeDecodeError:
        raise InputError(f"{path} is not a text file: a script is JSON lines") from None
    except OSError as error:
        raise InputError(f"the script {path} cannot be read: {error.strerror}") from None


def _as_mapping(text: str, where: str) -> Mapping[str, Json]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{where} is not JSON ({fault_of(error)}): write one object a line"
        ) from None
    if not isinstance(value, dict):
        raise InputError(f'{where} is not a JSON object: write {{"content": "…"}}')
    return value


def _as_line(given: Reply | str | Mapping[str, Json], where: str) -> _Line:
    if isinstance(given, Reply):
        return _Line(reply=given)
    if isinstance(given, str):
        given = {"content": given}
    _check(given, where)
    draft = Draft(lambda _: None)
    draft.take({"choices": [{"message": dict(given), "finish_reason": given.get("finish_reason")}]})
    reply = draft.reply()
    finish_reason = reply.finish_reason or ("tool_calls" if reply.tool_calls else "stop")
    return _Line(
        reply=replace(reply, finish_reason=finish_reason),
        usage=given.get("usage"),
        delay_s=float(given.get("delay_s") or 0.0),
    )


def _check(given: Mapping[str, Json], where: str) -> None:
    """Refuse a line whose mistake would otherwise pass as an empty reply."""
    if "content" not in given and not given.get("tool_calls"):
        raise InputError(f'{where} has neither "content" nor "tool_calls"')
    shapes: dict[str, tuple[type, ...]] = {
        "content": (str, list),
        "tool_calls": (list,),
        "usage": (dict,),
        "finish_reason": (str,),
        "delay_s": (int, float),
        "for": (str,),
        "reasoning": (str,),
        "reasoning_content": (str,),
    }
    for field, types in shapes.items():
        value = given.get(field)
        if value is not None and not isinstance(value, types):
            raise InputError(f"{where}: {field!r} must be {types[-1].__name__}, not {value!r:.40}")
    delay_s = given.get("delay_s") or 0
    if not 0 <= delay_s <= MAX_DELAY_S:
        raise InputError(f"{where}: 'delay_s' must be from 0 to {MAX_DELAY_S}, not {delay_s!r:.40}")


def _pieces(reply: Reply) -> Iterable[ReplyText]:
    calls = "\n".join(f"{call.name} {call.arguments}" for call in reply.tool_calls)
    for kind, text in (("reasoning", reply.reasoning), ("", reply.content), ("call", calls)):
        size = max(1, -(-len(text) // PIECES))
        for start in range(0, len(text), size):
            yield ReplyText(
                text=text[start : start + size], reasoning=kind == "reasoning", call=kind == "call"
            )
