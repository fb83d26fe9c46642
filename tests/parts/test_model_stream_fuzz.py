"""Streams that no server would send: the reader reads each, or says that the endpoint is at fault.

``FUZZED_STREAMS=20000`` tries that many.
"""

from __future__ import annotations

import json
import os
import random
import tracemalloc
from contextlib import suppress

from kernel_agent.models.errors import EndpointError
from kernel_agent.models.stream import ReplyReader
from kernel_agent.records.conversation import Reply

STREAMS = int(os.environ.get("FUZZED_STREAMS", "1500"))
MB = 1_000_000


def chunk(delta, finish_reason=None, **more):
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return b"data: " + json.dumps({"choices": [choice], **more}).encode() + b"\n\n"


CALL = {"index": 0, "id": "a", "function": {"name": "python", "arguments": '{"code": "1"}'}}
EVENTS = [
    chunk({"role": "assistant", "content": ""}),
    chunk({"content": "Let me see.\n```python\nprint(1)\n```"}),
    chunk({"reasoning_content": "Hm."}),
    chunk({"tool_calls": [CALL]}),
    chunk({"tool_calls": [{"index": 0, "function": {"arguments": " 2"}}]}),
    chunk({}, "stop"),
    chunk({}, "length", usage={"prompt_tokens": 3, "completion_tokens": 4}),
    b": ping\n\n",
    b'event: error\ndata: {"message": "Overloaded"}\n\n',
    b'error: {"code": 400, "message": "too long"}\n\n',
    b'{"error": "as it is"}\n',
    b'data: {"choices": [], "usage": {"prompt_tokens": 1e400}}\n\n',
    b"data: [DONE]\n\n",
]
NOISE = [
    b"\r", b"\n", b"\x00", b"\xff", b"data:", b"data: ", b"error:", b"{", b"}", b"[", b"]", b'"',
    b"\\", b"\\ud800", b"null", b"-1", b"1e999", b"9" * 5000, b"[" * 2000, b'{"error":',
    b'"choices":', b'"index":', b'"delta":', b":", b",", b"NaN", b"[DONE]",
]  # fmt: skip


def mutated(choose: random.Random) -> bytes:
    """A stream of a few events with bytes put in, taken out, doubled and swapped."""
    stream = bytearray(b"".join(choose.choices(EVENTS, k=choose.randint(1, 8))))
    for _ in range(choose.randint(0, 6)):
        at, end = sorted(choose.choices(range(len(stream) + 1), k=2))
        kind = choose.randrange(4)
        if kind == 0:
            stream[at:at] = choose.choice(NOISE)
        elif kind == 1:
            del stream[at : min(end, at + 40)]
        elif kind == 2:
            stream[at:at] = stream[at : min(end, at + 400)]
        elif stream:
            stream[at % len(stream)] = choose.randrange(256)
    return bytes(stream)


def read(stream: bytes, choose: random.Random) -> None:
    """Feed a stream in pieces of any size; what comes of it is a reply, or the endpoint's fault."""
    reader = ReplyReader(lambda _: None)
    at = 0
    with suppress(EndpointError):
        while at < len(stream):
            size = choose.choice([1, 7, 100, 10_000])
            reader.feed(stream[at : at + size])
            at += size
        assert isinstance(reader.finish(), Reply)


def test_no_stream_breaks_the_reader():
    """Nothing but a reply or an error of the endpoint comes of it, however it was damaged."""
    choose = random.Random(4711)
    for number in range(STREAMS):
        stream = mutated(choose)
        try:
            read(stream, choose)
        except Exception as error:
            raise AssertionError(f"stream {number}: {stream!r}") from error


def test_a_stream_without_end_grows_the_host_by_a_bounded_amount():
    """Whatever it repeats: text that never ends, refusals, calls, or lines of one event."""
    for kind, bound in (
        (chunk({"content": "word " * 20_000}), 40 * MB),
        (chunk({"refusal": "word " * 20_000}), 40 * MB),
        (chunk({"tool_calls": [{"function": {"name": "f" * 10_000}}]}), 10 * MB),
        (b"data: \n", 80 * MB),
        (b"event: " + b"x" * 9000 + b"\n", 10 * MB),
    ):
        assert grown_by(kind) < bound


def grown_by(piece: bytes) -> int:
    """Return what a stream that repeats a piece allocates at most until it ends, or for long."""
    reader = ReplyReader(lambda _: None)
    several = piece * max(1, 100_000 // len(piece))
    tracemalloc.start()
    try:
        for _ in range(400):
            reader.feed(several)
            if reader.done:
                break
        reader.finish()
    except EndpointError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak
