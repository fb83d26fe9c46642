"""Which hosts are opened by which name; pure."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_agent.errors import UsageError
from kernel_agent.sandbox.allowlist import (
    AllowedHost,
    find_allowed,
    may_connect,
    parse_host,
    split_host,
)


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("example.org", AllowedHost("example.org")),
        ("Example.ORG.", AllowedHost("example.org")),
        ("example.org:8080", AllowedHost("example.org", (8080,))),
        ("bücher.example", AllowedHost("xn--bcher-kva.example")),
        ("127.0.0.1:9000", AllowedHost("127.0.0.1", (9000,))),
        ("[::1]:9000", AllowedHost("::1", (9000,))),
        ("::1", AllowedHost("::1")),
        ("[0:0::1]", AllowedHost("::1")),
        ("localhost", AllowedHost("localhost")),
        ("my_host-2", AllowedHost("my_host-2")),
    ],
)
def test_a_host_is_read_in_its_one_spelling(text, host):
    assert parse_host(text) == host


@pytest.mark.parametrize(
    "text",
    [
        "", " ", ".", "https://example.org", "example.org/path", "*.example.org", "*", "a b",
        "example.org:", "example.org:0", "example.org:65536", "example.org:http", "exam\nple.org",
        "[::1", "[::1]9", "-a.example", "a..b", "a" * 64 + ".org", "0x7f000001", "2130706433",
        "127.1", "user@example.org", "example.org:٨٠",
    ],
)  # fmt: skip
def test_what_is_no_host_is_refused_with_the_option_in_the_message(text):
    with pytest.raises(UsageError, match=r"--allow-host .*: "):
        parse_host(text)


def test_only_the_named_host_and_port_is_permitted():
    allowed = [parse_host("example.org"), parse_host("api.example.org:8443")]
    assert find_allowed("example.org", 443, allowed)
    assert find_allowed("example.org", 80, allowed)
    assert find_allowed("api.example.org", 8443, allowed)
    for host, port in [
        ("example.org", 22), ("api.example.org", 443), ("evil-example.org", 443),
        ("example.org.evil", 443), ("sub.example.org", 443), ("", 443), ("93.184.216.34", 443),
    ]:  # fmt: skip
        assert find_allowed(host, port, allowed) is None


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "192.168.0.1", "172.16.0.1", "169.254.169.254", "0.0.0.0", "::1",
        "fe80::1", "fd00::1", "::ffff:127.0.0.1", "2002:7f00:1::", "100.64.0.1", "224.0.0.1",
        "junk",
        "fe80::1%eth0", "64:ff9b::7f00:1", "64:ff9b::10.0.0.1", "64:ff9b:1::8.8.8.8",
        "64:ff9b::169.254.169.254", "2002:a9fe:a9fe::1", "2001:0:4136:e378::1", "fec0::1",
        "::127.0.0.1", "::ffff:0:127.0.0.1", "2600::5efe:127.0.0.1", "2600::200:5efe:8.8.8.8",
        "192.0.0.9", "192.88.99.1", "198.18.0.1", "192.0.2.1", "0.1.2.3", "240.0.0.1", "ff0e::1",
        "255.255.255.255", "2001:db8::1", "3fff::1", "0177.0.0.1", "2130706433", "127.1",
        "8.8.8.8.",
    ],
)  # fmt: skip
def test_a_public_name_never_leads_to_a_private_address(address):
    assert not may_connect(AllowedHost("example.org"), address)


def test_a_public_address_and_a_local_one_that_was_named_may_be_connected_to():
    assert may_connect(AllowedHost("example.org"), "93.184.216.34")
    assert may_connect(AllowedHost("example.org"), "2606:2800:220:1::1")
    assert may_connect(AllowedHost("example.org"), "64:ff9b::93.184.216.34")  # behind DNS64
    assert may_connect(AllowedHost("localhost"), "127.0.0.1")
    assert may_connect(AllowedHost("10.0.0.5"), "10.0.0.5")


@given(st.text(max_size=300))
def test_any_text_is_split_into_a_usable_host_or_nothing(text):
    host, port = split_host(text)
    assert host == "" or split_host(f"[{host}]" if ":" in host else host) == (host, None)
    assert port is None or 0 < port < 65536


CARRYING = [
    (ipaddress.IPv6Network(network), place)
    for network, place in [
        ("::ffff:0:0/96", 0), ("::/96", 0), ("::ffff:0:0:0/96", 0), ("64:ff9b::/96", 0),
        ("64:ff9b:1::/96", 0), ("2002::/16", 80), ("2001::/32", 0), ("2600::5efe:0:0/96", 0),
    ]
]  # fmt: skip


@given(st.ip_addresses(v=4), st.sampled_from(CARRYING))
def test_no_address_of_ipv6_carries_a_private_one_of_ipv4(inner, carrying):
    network, place = carrying
    carrier = ipaddress.IPv6Address(int(network.network_address) | (int(inner) << place))
    if not inner.is_global:
        assert not may_connect(AllowedHost("example.org"), str(carrier))


@given(st.ip_addresses())
def test_what_python_does_not_call_global_is_never_connected_to(address):
    if may_connect(AllowedHost("example.org"), str(address)) and address not in NAT64:
        assert address.is_global
        assert not address.is_multicast


NAT64 = ipaddress.IPv6Network("64:ff9b::/96")  # what it carries decides


@pytest.mark.parametrize("host", ["a" * 100_000, "é" * 100_000, "a." * 100_000])
def test_a_text_much_longer_than_a_name_is_no_name_and_costs_nothing(host):
    assert split_host(host) == ("", None)
