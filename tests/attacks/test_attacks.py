"""Real attacks against real sandboxes: none on the boundary may pass, and they must have run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.levels import need

from attacks.collect import play_as, readable_tree
from attacks.words import BOUNDARY, load

CATALOGUE = load()
PLAYED = [
    a.name
    for a in CATALOGUE.values()
    if a.category in (*BOUNDARY, "persistence") and not a.own_kernel
]
MACHINE = {
    "vsock": "no loopback for vsock in this kernel",
    "kernel_keyring": "root's keyring is not the one of the kernel's user",
    "posix_message_queue": "no POSIX message queues",
    "tcp_other_address": "no other address",
    "tcp_v6": "no IPv6",
    "file_in_dev_shm": "no /dev/shm",
    "offer_a_process": "every process has the highest score already",
    "machine_identity": "no such files",
}
"""Attacks that depend on what the machine has, with the reason."""


@pytest.fixture(scope="module")
def tree() -> Iterator[Path]:
    with readable_tree() as made:
        yield made


def need_user_python() -> None:
    if os.getuid() == 0 and not os.environ.get("KERNEL_AGENT_USER_PYTHON"):
        pytest.skip("KERNEL_AGENT_USER_PYTHON names no interpreter for an ordinary user")


def play(user: str, level: str, tree: Path) -> dict[str, dict[str, Any]]:
    told = play_as(user, level, PLAYED, tree)
    assert told["started"], told.get("reason")
    return {result["attack"]: result for result in told["results"]}


def of(results: dict[str, dict[str, Any]], verdict: str) -> dict[str, str]:
    return {name: r["seen"] for name, r in results.items() if r["verdict"] == verdict}


@pytest.mark.long
def test_every_attack_succeeds_for_an_ordinary_user_without_a_sandbox(tree: Path) -> None:
    """The control: without it, 'stopped' would say nothing. Those that cannot say why."""
    need_user_python()
    results = play("user", "none", tree)
    failed = {
        name: (r["verdict"], r["seen"])
        for name, r in results.items()
        if r["verdict"] != "not stopped" and not CATALOGUE[name].no_control and name not in MACHINE
    }
    assert failed == {}


@pytest.mark.parametrize("user", ["user", "root"])
def test_no_attack_on_the_boundary_passes_bubblewrap(user: str, tree: Path) -> None:
    if user == "root" and os.getuid() != 0:
        pytest.skip("needs root")
    if user == "user":
        need_user_python()
    need("bubblewrap")
    results = play(user, "bubblewrap", tree)
    assert of(results, "not stopped") == {}
    not_run = {name: why for name, why in of(results, "not run").items() if name not in MACHINE}
    assert not_run == {}


def test_without_a_sandbox_attacks_are_never_played_as_root(tree: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("needs root")
    told = play_as("root", "none", ["key_in_home"], tree)
    assert not told["started"]
    assert told["results"] == []
