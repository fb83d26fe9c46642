"""The wire of the kernel's sockets: read the same however it is cut, and never past its bounds."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_agent.kernel import zmtp
from kernel_agent.kernel.zmtp import Command, Event, Message, ProtocolError, Reader, Ready

MOST = 5_000
PEER = zmtp.GREETING + zmtp.ready("ROUTER")

frames = st.lists(st.binary(max_size=700), min_size=1, max_size=9)
pieces = st.one_of(
    frames.map(zmtp.message),
    st.binary(max_size=20).map(lambda ttl: bytes([4, 5 + len(ttl)]) + b"\x04PING" + ttl),
    st.just(b"\x04\x07\x06CANCEL"),
)


def events(chunks: Iterable[bytes], most: int = MOST) -> Iterator[Event]:
    reader = Reader(lambda: most)
    for chunk in chunks:
        reader.feed(chunk)
        while (event := reader.next_event()) is not None:
            yield event


def cut(data: bytes, places: Iterable[int]) -> list[bytes]:
    marks = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[a:b] for a, b in pairwise(marks)]


def kept_by(reader: Reader) -> int:
    return len(reader._data) - reader._at + len(reader._part) + sum(map(len, reader._frames))


@given(st.lists(pieces, max_size=6), st.lists(st.integers(min_value=0), max_size=30))
def test_however_the_bytes_are_cut_the_events_are_the_same(
    sent: list[bytes], places: list[int]
) -> None:
    data = PEER + b"".join(sent)
    whole = list(events([data]))
    assert whole[0] == Ready()
    assert len(whole) == 1 + len(sent)
    assert list(events(cut(data, places))) == whole
    assert list(events(data[i : i + 1] for i in range(len(data)))) == whole


@given(frames)
def test_what_is_sent_is_what_is_read(sent: list[bytes]) -> None:
    _, message = events([PEER + zmtp.message(sent)], most=10_000)
    size = sum(map(len, sent))
    assert message == Message(frames=list(sent), size=size, complete=True)


@given(
    st.lists(pieces, min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(min_value=0), st.integers(0, 255)), min_size=1, max_size=8),
    st.lists(st.integers(min_value=0), max_size=8),
)
def test_whatever_is_changed_on_the_way_is_read_or_refused_and_little_is_kept(
    sent: list[bytes], changes: list[tuple[int, int]], places: list[int]
) -> None:
    data = bytearray(PEER + b"".join(sent))
    for place, value in changes:
        data[place % len(data)] = value
    reader = Reader(lambda: MOST)
    chunks = cut(bytes(data), places)
    try:
        for chunk in chunks:
            reader.feed(chunk)
            while (event := reader.next_event()) is not None:
                if isinstance(event, Message):
                    assert sum(map(len, event.frames)) <= MOST
            assert kept_by(reader) <= MOST + zmtp.MAX_COMMAND
    except ProtocolError:
        pass


def test_of_a_message_that_is_too_large_only_the_small_frames_are_kept() -> None:
    sent = [b"topic", b"x" * 6_000, b"end"]
    _, message, following = events([PEER + zmtp.message(sent) + zmtp.message([b"next"])])
    assert message == Message(frames=[b"topic", b"end"], size=6_008, complete=False)
    assert following == Message(frames=[b"next"], size=4, complete=True)


def test_nothing_that_is_only_announced_takes_memory() -> None:
    reader = Reader(lambda: zmtp.MAX_SIZE)
    reader.feed(PEER + b"\x02" + (zmtp.MAX_SIZE - 1).to_bytes(8, "big") + b"x" * 100)
    assert reader.next_event() == Ready()
    assert reader.next_event() is None
    assert kept_by(reader) <= 200


def test_a_message_of_endless_parts_is_given_up() -> None:
    reader = Reader(lambda: MOST)
    reader.feed(PEER)
    assert reader.next_event() == Ready()
    part = b"\x03" + (1 << 20).to_bytes(8, "big") + bytes(1 << 20)
    for _ in range(zmtp.MAX_SIZE // (1 << 20)):
        reader.feed(part)
        assert reader.next_event() is None
        assert kept_by(reader) <= MOST
    reader.feed(part)
    with pytest.raises(ProtocolError, match="without an end"):
        reader.next_event()
    reader = Reader(lambda: MOST)
    reader.feed(PEER + b"\x01\x00" * (zmtp.MAX_PARTS + 1))
    assert reader.next_event() == Ready()
    with pytest.raises(ProtocolError, match="without an end"):
        reader.next_event()


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\nAccept: everything that is there, and more\r\n\r\n",
        zmtp.GREETING.replace(b"NULL", b"CURV"),
        zmtp.GREETING.replace(b"\x7f\x03", b"\x7f\x02"),
        zmtp.GREETING + zmtp.message([b"before READY"]),
        zmtp.GREETING + b"\x04\x06\x05HELLO",
        PEER + b"\x04\x06\x05ERROR",
        PEER + b"\x05\x05\x04PING",
        PEER + b"\x06" + (zmtp.MAX_COMMAND + 1).to_bytes(8, "big"),
        PEER + b"\x01\x01x" + b"\x04\x05\x04PING",
        PEER + b"\x02" + (2**63).to_bytes(8, "big"),
    ],
)
def test_a_peer_that_does_not_keep_to_the_protocol_is_refused(sent: bytes) -> None:
    with pytest.raises(ProtocolError):
        list(events([sent]))


def test_a_ping_is_answered_with_its_own_words_and_never_with_more() -> None:
    said = random.Random(1).randbytes(16)
    _, ping, longer = events(
        [PEER, b"\x04\x17\x04PING\0\x01" + said, b"\x04\x57\x04PING\0\x01" + said * 5]
    )
    assert ping == longer == Command(answer=b"\x04\x15\x04PONG" + said)
