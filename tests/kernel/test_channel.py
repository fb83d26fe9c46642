"""A channel and a real libzmq peer: nothing is lost, nothing is read ahead, no second peer."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import zmq
from support.waiting import until

from kernel_agent.kernel import zmtp
from kernel_agent.kernel.channel import Channel

MOST = 3_000_000


Bind = Callable[..., "zmq.Socket[bytes]"]


@pytest.fixture
def bound(tmp_path: Path) -> Iterator[Bind]:
    """Make real sockets of libzmq, bound where a channel looks for them."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    made: list[zmq.Socket[bytes]] = []

    def bind(kind: int, address: str = f"ipc://{tmp_path / 's'}", **options: Any) -> Any:
        socket = context.socket(kind)
        made.append(socket)
        for name, value in options.items():
            setattr(socket, name, value)
        socket.bind(address)
        return socket

    yield bind
    for socket in made:
        socket.close(linger=0)
    context.term()


class Heard:
    """A channel, and what it has handed on."""

    def __init__(self, address: str | tuple[str, int], **given: Any) -> None:
        self.messages: list[zmtp.Message] = []
        self.lost: list[str] = []
        self.channel = Channel(
            address, **{"kind": "DEALER", "identity": b"host", "most": lambda: MOST, **given},
            on_message=self.messages.append, on_lost=self.lost.append,
        )  # fmt: skip
        self.channel.open()

    @property
    def texts(self) -> list[bytes]:
        return [bytes(message.frames[-1]) for message in self.messages]


@pytest_asyncio.fixture
async def heard(tmp_path: Path) -> AsyncIterator[Callable[..., Heard]]:
    made: list[Heard] = []

    def make(address: str | tuple[str, int] | None = None, **given: Any) -> Heard:
        made.append(Heard(address or str(tmp_path / "s"), **given))
        return made[-1]

    yield make
    for one in made:
        await one.channel.close()


async def received(socket: zmq.Socket[bytes]) -> list[bytes]:
    await until(lambda: socket.poll(0))
    return socket.recv_multipart()


async def test_messages_of_all_sizes_go_both_ways(bound: Bind, heard: Callable[..., Heard]) -> None:
    router = bound(zmq.ROUTER)
    one = heard()
    for size in (0, 1, 255, 256, 70_000, 2_500_000):
        body = os.urandom(size)
        assert one.channel.send([b"", body, b"end"])
        assert await received(router) == [b"host", b"", body, b"end"]
        await asyncio.to_thread(router.send_multipart, [b"host", b"", body])
        await until(lambda: one.messages)
        assert [bytes(frame) for frame in one.messages.pop().frames] == [b"", body]


async def test_it_waits_for_a_socket_that_is_bound_later_and_then_sends_what_waited(
    bound: Bind, heard: Callable[..., Heard]
) -> None:
    one = heard()
    one.channel.send([b"first"])
    await asyncio.sleep(0.05)  # a moment: in which nobody is there
    router = bound(zmq.ROUTER)
    assert await received(router) == [b"host", b"first"]


async def test_over_tcp_as_well(bound: Bind, heard: Callable[..., Heard]) -> None:
    router = bound(zmq.ROUTER, "tcp://127.0.0.1:*")
    port = router.last_endpoint.decode().rpartition(":")[2]
    one = heard(("127.0.0.1", int(port)), ahead=1_000_000)
    one.channel.send([b"there"])
    assert await received(router) == [b"host", b"there"]
    router.send_multipart([b"host", b"and back"])
    await until(lambda: one.texts == [b"and back"])


async def test_of_100_000_publications_to_a_slow_reader_none_is_lost(
    bound: Bind, heard: Callable[..., Heard]
) -> None:
    publisher = bound(zmq.XPUB, sndhwm=0)
    one = heard(kind="SUB", identity=b"")
    assert await asyncio.to_thread(publisher.recv) == b"\x01"
    sent = hashlib.sha256()
    for number in range(100_000):
        body = b"%d" % number
        sent.update(body)
        publisher.send_multipart([b"topic", body])
    await until(lambda: len(one.messages) == 100_000)
    assert hashlib.sha256(b"".join(one.texts)).digest() == sent.digest()


async def test_what_is_not_looked_at_is_not_read_and_the_sender_waits(
    bound: Bind, heard: Callable[..., Heard]
) -> None:
    router = bound(zmq.ROUTER, sndhwm=1, router_mandatory=1)
    one = heard()
    one.channel.send([b"hello"])
    await received(router)
    one.channel.hold(held=True)
    count = 0
    for _ in range(200):  # what fits into the operating system's buffers is sent
        try:
            router.send_multipart([b"host", bytes(100_000)], zmq.NOBLOCK)
            count += 1
        except zmq.Again:
            await asyncio.sleep(0.005)
    assert count < 100
    assert not one.messages
    one.channel.hold(held=False)
    await until(lambda: len(one.messages) == count)


async def test_a_message_that_is_too_large_is_left_out_and_the_next_one_comes(
    bound: Bind, heard: Callable[..., Heard]
) -> None:
    router = bound(zmq.ROUTER)
    one = heard()
    one.channel.send([b"hello"])
    await received(router)
    router.send_multipart([b"host", b"head", bytes(MOST + 1), b"tail"])
    router.send_multipart([b"host", b"next"])
    await until(lambda: len(one.messages) == 2)
    large, following = one.messages
    assert (large.frames, large.size, large.complete) == ([b"head", b"tail"], MOST + 9, False)
    assert (following.frames, following.complete) == ([b"next"], True)


async def test_the_end_is_told_once_after_all_that_came_before_it(
    bound: Bind, heard: Callable[..., Heard]
) -> None:
    router = bound(zmq.ROUTER, linger=10_000, sndhwm=0)
    one = heard()
    one.channel.send([b"hello"])
    await received(router)
    for number in range(3_000):
        router.send_multipart([b"host", b"%d" % number])
    router.close()
    await until(lambda: one.lost)
    assert one.texts == [b"%d" % number for number in range(3_000)]
    assert one.lost == ["the connection ended"]


async def test_whoever_listens_there_afterwards_is_not_connected_to(
    bound: Bind, tmp_path: Path, heard: Callable[..., Heard]
) -> None:
    path = tmp_path / "s"
    router = bound(zmq.ROUTER)
    one = heard()
    one.channel.send([b"hello"])
    await received(router)
    router.close(linger=0)
    await until(lambda: one.lost)
    path.unlink(missing_ok=True)
    came: list[object] = []
    server = await asyncio.start_unix_server(lambda *given: came.append(given), path)
    await asyncio.sleep(0.2)  # a moment: nobody comes
    server.close()
    assert came == []


async def test_a_peer_that_breaks_off_its_greeting_is_tried_again(
    bound: Bind, tmp_path: Path, heard: Callable[..., Heard]
) -> None:
    path, came = tmp_path / "s", []

    async def break_off(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(writer)
        writer.write(zmtp.GREETING[: 10 * len(came)])
        writer.close()

    server = await asyncio.start_unix_server(break_off, path)
    one = heard()
    await until(lambda: len(came) >= 3)
    server.close()
    path.unlink(missing_ok=True)
    router = bound(zmq.ROUTER)
    one.channel.send([b"hello"])
    assert await received(router) == [b"host", b"hello"]
    assert one.lost == []


async def test_a_peer_that_asks_for_signs_of_life_gets_them(
    bound: Bind, heard: Callable[..., Heard]
) -> None:
    """libzmq ends a connection over which its PING was not answered in time."""
    router = bound(zmq.ROUTER, heartbeat_ivl=50, heartbeat_timeout=5_000)
    one = heard()
    one.channel.send([b"hello"])
    await received(router)
    sent = []
    transport = one.channel._transport
    assert transport is not None
    write, transport.write = transport.write, lambda data: (sent.append(data), write(data))  # type: ignore[method-assign]
    await until(lambda: sent)
    assert sent[0].startswith(b"\x04\x05\x04PONG")
    assert one.lost == []


async def test_what_a_peer_does_not_take_is_dropped_at_a_bound(
    tmp_path: Path, heard: Callable[..., Heard], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernel_agent.kernel.channel.MAX_WAITING", 5_000_000)

    peers: list[asyncio.StreamWriter] = []

    async def introduce(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peers.append(writer)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(zmtp.GREETING + zmtp.ready("ROUTER"))

    server = await asyncio.start_unix_server(introduce, tmp_path / "s")
    one = heard()
    await until(lambda: one.channel._stands)
    taken = [one.channel.send([bytes(1_000_000)]) for _ in range(12)]
    assert taken[0]
    assert not taken[-1]
    server.close()
    peers[0].transport.abort()
    await asyncio.sleep(0)
