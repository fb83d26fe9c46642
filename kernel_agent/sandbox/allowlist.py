"""Allowlist of hosts that a sandboxed kernel may reach through the proxy.

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
    """An allowed host; ``ports`` are those that may be reached there."""

    name: str
    ports: tuple[int, ...] = WEB_PORTS

    @property
    def is_local(self) -> bool:
        """Whether the person deliberately named an address that is not on the public internet."""
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
    """Split ``NAME[:PORT]`` and normalize the name; empty if it is not one.

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
        return normalize(host), None
    number = int(port) if port.isascii() and port.isdecimal() and len(port) < 6 else 0
    if not 0 < number < 65536:
        return "", None
    return normalize(host), number


def normalize(host: str) -> str:
    """Return a host name or address in its one spelling, or ``""`` when it is neither."""
    address = _address(host)
    if address is not None:
        return str(address)
    if len(host) > NAME_MAX + 1:  # IDNA of a long text takes long, and none becomes a name
        return ""
    name = host.removesuffix(".").lower()
    try:
        name = name.encode("idna").decode("ascii")
    except UnicodeError:
        return ""
    labels = name.split(".")
    fits = 0 < len(name) <= NAME_MAX and all(_is_label(label) for label in labels)
    is_number_in_disguise = labels[-1].isdecimal() or labels[-1].startswith("0x")
    return name if fits and not is_number_in_disguise else ""


def find_allowed(host: str, port: int, allowed: Iterable[AllowedHost]) -> AllowedHost | None:
    """Return the named host that opens ``host:port`` (in its one spelling), or None."""
    return next((named for named in allowed if named.name == host and port in named.ports), None)


def may_connect(named: AllowedHost, address: str) -> bool:
    """Whether connections are allowed to an address that a name resolved to.

    A public name that resolves to a private address is how a resolver is turned against the host's
    own network (DNS rebinding): only an address or ``localhost`` that a person named is exempt.
    """
    if named.is_local:
        return True
    found = _address(address)
    return found is not None and _is_public(found)


# Addresses of IPv6 that stand for one of IPv4, and where in them it begins, in bits from the end:
# mapped (RFC 4291, 2.5.5.2), NAT64 (RFC 6052; behind DNS64 every name of IPv4 alone has one).
_CARRIERS = (
    (ipaddress.IPv6Network("::ffff:0:0/96"), 0),
    (ipaddress.IPv6Network("64:ff9b::/96"), 0),
)
# What may lead inside and Python 3.11 calls global, or did in one of its versions: compatible and
# translated addresses (RFC 4291, 2.5.5.1; RFC 6145), NAT64 of a network's own, which may hide the
# address anywhere (RFC 8215), Teredo and others of protocols (RFC 2928, 6890), site-local (RFC
# 3879), 6to4 and its relay (RFC 3056, 7526), discarding (RFC 6666), documents (RFC 9637) and
# segments (RFC 9602).
_NOT_PUBLIC = tuple(
    map(
        ipaddress.ip_network,
        ("192.0.0.0/24", "192.88.99.0/24", "::/96", "::ffff:0:0:0/96", "64:ff9b:1::/48",
         "2001::/23", "2002::/16", "fec0::/10", "100::/64", "3fff::/20", "5f00::/16"),
    )
)  # fmt: skip
_ISATAP = (0x00005EFE, 0x02005EFE)  # bits 64 to 95 before an address of IPv4 (RFC 5214)


def _is_public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether an address is one of the public internet, and hides none that is not."""
    for network, place in _CARRIERS:
        if address in network:
            return _is_public(ipaddress.IPv4Address((int(address) >> place) & 0xFFFFFFFF))
    if not address.is_global or address.is_multicast:
        return False
    is_isatap = address.version == 6 and (int(address) >> 32) & 0xFFFFFFFF in _ISATAP
    return not is_isatap and not any(address in network for network in _NOT_PUBLIC)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _is_label(label: str) -> bool:
    plain = label.replace("-", "").replace("_", "")
    return 0 < len(label) < 64 and plain.isalnum() and plain.isascii() and label[0] != "-"
