"""Which hosts are opened by which name; pure."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_agent.errors import UsageError
from kernel_agent.sandbox.hosts import (
    AllowedHost,
    may_connect,
    parse_host,
    permitted,
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
    assert permitted("example.org", 443, allowed)
    assert permitted("example.org", 80, allowed)
    assert permitted("api.example.org", 8443, allowed)
    for host, port in [
        ("example.org", 22), ("api.example.org", 443), ("evil-example.org", 443),
        ("example.org.evil", 443), ("sub.example.org", 443), ("", 443), ("93.184.216.34", 443),
    ]:  # fmt: skip
        assert permitted(host, port, allowed) is None


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "192.168.0.1", "172.16.0.1", "169.254.169.254", "0.0.0.0", "::1",
        "fe80::1", "fd00::1", "::ffff:127.0.0.1", "2002:7f00:1::", "100.64.0.1", "224.0.0.1",
        "junk",
        "fe80::1%eth0",
    ],
)  # fmt: skip
def test_a_public_name_never_leads_to_a_private_address(address):
    assert not may_connect(AllowedHost("example.org"), address)


def test_a_public_address_and_a_local_one_that_was_named_may_be_connected_to():
    assert may_connect(AllowedHost("example.org"), "93.184.216.34")
    assert may_connect(AllowedHost("example.org"), "2606:2800:220:1::1")
    assert may_connect(AllowedHost("localhost"), "127.0.0.1")
    assert may_connect(AllowedHost("10.0.0.5"), "10.0.0.5")


@given(st.text(max_size=300))
def test_any_text_is_split_into_a_usable_host_or_nothing(text):
    host, port = split_host(text)
    assert host == "" or split_host(f"[{host}]" if ":" in host else host) == (host, None)
    assert port is None or 0 < port < 65536
