"""Attacks that reach for something outside by a socket."""

import contextlib
import socket
import subprocess
from pathlib import Path
from typing import Any

from attacks.cells.prelude import CLONE_NEWNET, in_user_namespace, keep, stay
from attacks.score import held, reached
from attacks.stage import NotHere, Stage
from attacks.words import Report, attack


def needs(server: str) -> Any:
    """Return a preparation that tells whether this machine could start a server."""

    def before(stage: Stage) -> dict[str, object]:
        if server not in stage.servers:
            raise NotHere(f"this machine has no {server} sockets")
        return {}

    return before


@attack("network", reached("tcp"))
def tcp(c):
    """TCP to a server on loopback"""
    with socket.create_connection(tuple(c.tcp), timeout=3) as s:
        s.sendall(c.token.encode())
        return s.recv(100)


@attack("network", reached("tcp_v6"), before=needs("tcp_v6"))
def tcp_v6(c):
    """TCP over IPv6"""
    with socket.create_connection(tuple(c.tcp_v6[:2]), timeout=3) as s:
        s.sendall(c.token.encode())
        return s.recv(100)


@attack("network", reached("tcp_other"), before=needs("tcp_other"))
def tcp_other_address(c):
    """TCP to an address of the machine that is not loopback (stands for the outside)"""
    with socket.create_connection(tuple(c.tcp_other), timeout=3) as s:
        s.sendall(c.token.encode())
        return s.recv(100)


@attack("network", reached("tcp"))
def tcp_by_shell(c):
    """TCP by a child process (bash's /dev/tcp)"""
    host, port = c.tcp
    return subprocess.run(
        ["bash", "-c", f"echo {c.token} > /dev/tcp/{host}/{port}"],
        check=True, capture_output=True, timeout=5,
    ).stdout  # fmt: skip


@attack("network", reached("tcp"))
def multipath_tcp(c):
    """Multipath TCP, which a rule for TCP may overlook"""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262) as s:
        s.settimeout(3)
        s.connect(tuple(c.tcp))
        s.sendall(c.token.encode())
        return s.recv(100)


@attack("network", reached("tcp"))
def tcp_fast_open(c):
    """TCP Fast Open: sending without connect()"""
    with socket.socket() as s:
        s.sendto(c.token.encode(), 0x20000000, tuple(c.tcp))  # MSG_FASTOPEN
        return s.recv(100)


@attack("network", reached("udp"))
def udp(c):
    """UDP (stands for names asked of a DNS server)"""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(1)
        s.sendto(c.token.encode(), tuple(c.udp))
        return s.recv(100)


@attack("network", reached("abstract"))
def abstract_socket(c):
    """An abstract unix socket of another program"""
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(3)
        s.connect(c.abstract)
        s.sendall(c.token.encode())
        return s.recv(100)


@attack("network", reached("abstract_datagram"))
def abstract_datagram(c):
    """A datagram to an abstract unix socket, without connect()"""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.sendto(c.token.encode(), c.abstract_datagram)


@attack("network", reached("pathname"))
def docker_socket(c):
    """A unix socket in a folder, as docker.sock"""
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(3)
        s.connect(c.pathname)
        s.sendall(f"GET /containers/json HTTP/1.0\r\n\r\n{c.token}".encode())
        return s.recv(100)


@attack("network", reached("shared_tmp_socket"), before=needs("shared_tmp_socket"))
def agent_socket(c):
    """A unix socket in /tmp, as those of ssh-agent"""
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(3)
        s.connect(c.shared_tmp_socket)
        s.sendall(c.token.encode())
        return s.recv(100)


@attack("network", reached("notify"))
def notify_socket(c):
    """A datagram to a unix socket in a folder (systemd's notify), without connect()"""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.sendto(c.token.encode(), c.notify)


@attack("network", reached("notify"))
def notify_socket_by_sendmsg(c):
    """The same by sendmsg on one end of a pair"""
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with left, right:
        left.sendmsg([c.token.encode()], [], 0, c.notify)


@attack("network", reached("sequenced"), before=needs("sequenced"))
def sequenced_socket(c):
    """A sequenced-packet unix socket in a folder (as some buses)"""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.settimeout(3)
        s.connect(c.sequenced)
        s.send(c.token.encode())
        return s.recv(100)


@attack("network", reached("vsock"), before=needs("vsock"))
def vsock(c):
    """vsock, the way from a machine to its host"""
    with socket.socket(socket.AF_VSOCK) as s:
        s.settimeout(3)
        s.connect(tuple(c.vsock))
        s.sendall(c.token.encode())
        return s.recv(100)


@attack("network", held("socket:AF_VSOCK"))
def vsock_socket(c):
    """Making a vsock socket at all"""
    return keep(socket.socket(socket.AF_VSOCK).detach())


@attack("network", held("socket:NETLINK"))
def netlink(c):
    """netlink, the door to the kernel's network code"""
    s = socket.socket(16, socket.SOCK_RAW, 0)
    s.bind((0, 0))
    return keep(s.detach())


@attack("network", held("socket:NETLINK"))
def netlink_audit(c):
    """netlink to the audit and connector subsystems"""
    held_ = []
    for protocol in (9, 11, 12, 15, 21):
        with contextlib.suppress(OSError):
            held_.append(keep(socket.socket(16, socket.SOCK_RAW, protocol).detach()))
    if not held_:
        raise PermissionError(1, "no netlink protocol")
    return held_


@attack("network", held("socket:RAW", "socket:PING", "socket:PACKET"))
def raw_sockets(c):
    """Raw, packet and ping sockets, also as root of an own namespace"""

    def make():
        in_user_namespace(CLONE_NEWNET)
        return keep(socket.socket(17, socket.SOCK_RAW, 0x0300).detach())

    for family, kind, protocol in ((2, 3, 1), (17, 3, 0x0300), (2, 2, 1)):
        with contextlib.suppress(OSError):
            return keep(socket.socket(family, kind, protocol).detach())
    return stay(make)


@attack("network", held("socket:"))
def unusual_families(c):
    """Rarely used socket families with a history of kernel bugs"""
    refused = []
    for family in (3, 4, 5, 9, 15, 21, 23, 26, 29, 30, 31, 33, 35, 36, 39, 40, 41, 42, 43, 44):
        for kind in (1, 2, 3, 5):
            try:
                return keep(socket.socket(family, kind, 0).detach())
            except OSError as error:
                refused.append(str(error))
    raise PermissionError(1, refused[-1])


def _listener(stage: Stage, report: Report) -> str:
    """Connect to where the attack said that it listens, as anybody on the machine could."""
    where = report.text.split()
    if not where:
        return ""
    with (
        contextlib.suppress(OSError, ValueError),
        socket.create_connection(("127.0.0.1", int(where[0])), timeout=1) as s,
    ):
        s.settimeout(2)
        if s.recv(100) == stage.token.encode():
            return "a server in the sandbox is reached from the machine"
    return ""


@attack("network", _listener)
def listen(c):
    """Opening a server that the machine can reach"""
    import threading

    s = socket.socket()
    s.bind(("0.0.0.0", 0))
    s.listen()
    s.settimeout(10)

    def serve():
        with contextlib.suppress(OSError):
            connection, _ = s.accept()
            connection.sendall(c.token.encode())
            connection.close()
        s.close()

    threading.Thread(target=serve, daemon=True).start()
    return s.getsockname()[1]


def _abstract_listener(stage: Stage, report: Report) -> str:
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as s:
        s.settimeout(2)
        s.connect(f"\0listen-{stage.token}")
        if s.recv(100) == stage.token.encode():
            return "an abstract socket of the sandbox is reached from the machine"
    return ""


@attack("network", _abstract_listener)
def listen_abstract(c):
    """Opening an abstract unix socket that programs of the machine may mistake for another"""
    import threading

    s = socket.socket(socket.AF_UNIX)
    s.bind(f"\0listen-{c.token}")
    s.listen()
    s.settimeout(5)

    def serve():
        with contextlib.suppress(OSError):
            connection, _ = s.accept()
            connection.sendall(c.token.encode())
            connection.close()
        s.close()

    threading.Thread(target=serve, daemon=True).start()
    return "listening"


def _neighbour_runs(stage: Stage) -> dict[str, object]:
    if stage.neighbour is None:
        raise NotHere("no second session was started")
    return {"neighbour": str(stage.neighbour_directory)}


@attack("network", lambda stage, report: _greeted(stage, report), before=_neighbour_runs)
def other_sessions_sockets(c):
    """Connecting to the sockets of another session's kernel"""
    import glob

    found = glob.glob(c.neighbour + "/**", recursive=True)
    sockets = [path for path in found if Path(path).is_socket()]
    if not sockets:
        raise FileNotFoundError(2, "no socket in sight")
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(3)
        s.connect(sockets[0])
        return s.recv(10).hex()


def _greeted(stage: Stage, report: Report) -> str:
    """ZMTP greets with ff 00…01 7f (https://rfc.zeromq.org/spec/23/)."""
    return "another session's socket answered" if report.text.startswith("ff00") else ""
