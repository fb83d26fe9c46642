"""Which hosts a sandboxed kernel may reach through the proxy: named ones, and nothing else.

A host is named as ``example.org`` (ports 80 and 443), ``example.org:8080``, or an address literal
(``127.0.0.1:9000``, ``[::1]:9000``). There are no wildcards: every name is written out. Pure: names
are compared here, resolved in :mod:`kernel_agent.sandbox.proxy`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

from kernel_agent.errors import UsageError

WEB_PORTS = (80, 443)
NAME_MAX = 253  # characters of a domain name (RFC 1035, 2.3.4)


@dataclass(frozen=True)
class AllowedHost:
    """One name that was opened; ``ports`` are those that may be reached there."""

    name: str
    ports: tuple[int, ...] = WEB_PORTS

    @property
    def is_local(self) -> bool:
        """Whether the person named an address that is not on the public internet by intention."""
        return self.name == "localhost" or _address(self.name) is not None

    def __str__(self) -> str:
        name = f"[{self.name}]" if ":" in self.name else self.name
        return name if self.ports == WEB_PORTS else f"{name}:{self.ports[0]}"


def parse_host(text: str) -> AllowedHost:
    """Read ``NAME`` or ``NAME:PORT`` as a person writes it after ``--allow-host``.

    Raises
    ------
    UsageError
        It is a URL, a wildcard, or not a name.
    """
    wrong = f"--allow-host {text!r}: "
    if "/" in text:
        raise UsageError(f"{wrong}name the host alone, as in --allow-host example.org")
    if "*" in text:
        raise UsageError(f"{wrong}there are no wildcards; name each host")
    name, port = split_host(text)
    if not name:
        raise UsageError(f"{wrong}not a host name; write NAME or NAME:PORT")
    if port is None:
        return AllowedHost(name)
    return AllowedHost(name, (port,))


def parse_hosts(texts: Iterable[str]) -> tuple[AllowedHost, ...]:
    """Read several; see :func:`parse_host`."""
    return tuple(parse_host(text) for text in texts)


def split_host(text: str) -> tuple[str, int | None]:
    """Split ``NAME[:PORT]`` and bring the name to its one spelling; an empty name if it is none.

    The one spelling: lower case, no final dot, IDNA, and for an address its canonical form. What
    browsers and libraries accept as other spellings of an address (``127.1``, ``0x7f000001``) is no
    name here.
    """
    text = text.strip()
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            return "", None
        port = rest[1:] if rest else None
    elif text.count(":") > 1:  # an IPv6 address without a port
        host, port = text, None
    else:
        host, colon, behind = text.partition(":")
        port = behind if colon else None
    if port is None:
        return spelled(host), None
    number = int(port) if port.isascii() and port.isdecimal() and len(port) < 6 else 0
    if not 0 < number < 65536:
        return "", None
    return spelled(host), number


def spelled(host: str) -> str:
    """Return a host name or address in its one spelling, or ``""`` when it is neither."""
    address = _address(host)
    if address is not None:
        return str(address)
    name = host.removesuffix(".").lower()
    try:
        name = name.encode("idna").decode("ascii")
    except UnicodeError:
        return ""
    labels = name.split(".")
    fits = 0 < len(name) <= NAME_MAX and all(_is_label(label) for label in labels)
    is_number_in_disguise = labels[-1].isdecimal() or labels[-1].startswith("0x")
    return name if fits and not is_number_in_disguise else ""


def permitted(host: str, port: int, allowed: Iterable[AllowedHost]) -> AllowedHost | None:
    """Return the named host that opens ``host:port`` (in its one spelling), or None."""
    return next((named for named in allowed if named.name == host and port in named.ports), None)


def may_connect(named: AllowedHost, address: str) -> bool:
    """Say whether an address that a name resolved to may be connected to.

    A public name that resolves to a private address is how a resolver is turned against the host's
    own network (DNS rebinding): only an address or ``localhost`` that a person named is exempt.
    """
    if named.is_local:
        return True
    found = _address(address)
    return found is not None and _is_public(found)


def _is_public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    inner = getattr(address, "ipv4_mapped", None) or getattr(address, "sixtofour", None)
    if inner is not None:
        return _is_public(inner)
    return address.is_global and not address.is_multicast


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _is_label(label: str) -> bool:
    plain = label.replace("-", "").replace("_", "")
    return 0 < len(label) < 64 and plain.isalnum() and plain.isascii() and label[0] != "-"
