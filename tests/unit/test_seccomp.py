"""The filter, run by a small interpreter of classic BPF: which call gets which answer."""

from __future__ import annotations

import struct
from errno import EINVAL, ENOSYS, EOPNOTSUPP, EPERM

import pytest

from kernel_agent.errors import SandboxError
from kernel_agent.sandbox.seccomp import Filter, program

ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
PRIVATE, SHARED = Filter(), Filter(shared_files=True)
PROCESSES = Filter(shared_files=True, shared_processes=True)


def answer(
    number: int,
    *arguments: int,
    rules: Filter = PRIVATE,
    machine: str = "x86_64",
    architecture: int | None = None,
) -> int:
    """Interpret the program for one call."""
    values = [*arguments, 0, 0, 0, 0, 0, 0][:6]
    audit = MACHINES[machine] if architecture is None else architecture
    data = struct.pack("<iIQ6Q", number & 0x7FFFFFFF, audit, 0, *values)
    lines = list(struct.iter_unpack("<HBBI", program(rules, machine)))
    at = accumulator = 0
    while True:
        code, yes, no, value = lines[at]
        at += 1
        if code == 0x20:
            accumulator = struct.unpack_from("<I", data, value)[0]
        elif code == 0x54:
            accumulator &= value
        elif code == 0x06:
            return int(value)
        else:
            true = {
                0x15: accumulator == value,
                0x35: accumulator >= value,
                0x45: bool(accumulator & value),
            }[code]
            at += yes if true else no


@pytest.mark.parametrize("rules", [PRIVATE, SHARED, PROCESSES])
def test_everyday_calls_pass(rules):
    for number in (0, 1, 9, 39, 59, 60, 257, 202, 231, 318, 332, 334):
        assert answer(number, rules=rules) == ALLOW


@pytest.mark.parametrize("machine", MACHINES)
def test_the_newest_and_all_future_calls_do_not_exist(machine):
    for number in (457, 458, 467, 470, 512, 10_000):
        assert answer(number, machine=machine) == ERRNO | ENOSYS
    assert answer(435, machine=machine) == ERRNO | ENOSYS  # clone3


def test_another_architecture_is_the_end():
    assert answer(0, architecture=0x40000003) == KILL  # i386, by int 0x80
    assert answer(0x40000000) == KILL  # x32


@pytest.mark.parametrize(
    ("number", "machine"),
    [(101, "x86_64"), (117, "aarch64"), (425, "x86_64"), (425, "aarch64"), (321, "x86_64"),
     (280, "aarch64"), (272, "x86_64"), (97, "aarch64"), (165, "x86_64"), (250, "x86_64"),
     (323, "x86_64"), (29, "x86_64"), (64, "x86_64"), (186, "aarch64"),
     (304, "x86_64"), (265, "aarch64"), (435 - 7, "x86_64")],
)  # fmt: skip
def test_dangerous_calls_are_refused(number, machine):
    assert answer(number, machine=machine) == ERRNO | EPERM


def test_a_process_is_made_but_no_namespace():
    assert answer(56, 0x01200011) == ALLOW
    for flag in (0x20000, 0x10000000, 0x40000000):
        assert answer(56, 0x11 | flag) == ERRNO | EPERM


def test_only_unix_sockets_are_made():
    assert answer(41, 1, 1) == ALLOW
    for family in (0, 2, 10, 16, 17, 38, 40):
        assert answer(41, family, 1) == ERRNO | EOPNOTSUPP
        assert answer(53, family, 1) == ERRNO | EOPNOTSUPP


def test_where_files_are_shared_no_socket_of_the_host_is_reached_by_its_path():
    """Neither by connecting, nor by datagrams, which need no connection."""
    assert answer(42, 3) == ALLOW
    assert answer(42, 3, rules=SHARED) == ERRNO | EPERM
    for call in (41, 53):
        assert answer(call, 1, 1 | 0o2000000, rules=SHARED) == ALLOW
        assert answer(call, 1, 5, rules=SHARED) == ALLOW
        for kind in (2, 3, 2 | 0o4000):
            assert answer(call, 1, kind, rules=SHARED) == ERRNO | EOPNOTSUPP


@pytest.mark.parametrize("rules", [PRIVATE, SHARED, PROCESSES])
@pytest.mark.parametrize(
    ("machine", "numbers"),
    [("x86_64", (29, 30, 31, 64, 65, 66, 67, 68, 69, 70, 71, 220, 240, 241)),
     ("aarch64", (180, 181, *range(186, 198)))],
)  # fmt: skip
def test_memory_and_queues_that_no_process_shows_are_reached_by_no_call(machine, numbers, rules):
    """Nor by an identifier that was guessed."""
    for number in numbers:
        assert answer(number, 28, rules=rules, machine=machine) == ERRNO | EPERM


@pytest.mark.parametrize(
    ("machine", "truncate", "openat"), [("x86_64", 76, 257), ("aarch64", 45, 56)]
)
def test_where_landlock_knows_no_emptying_only_who_may_write_a_file_empties_it(
    machine, truncate, openat
):
    rules = Filter(shared_files=True, shared_processes=True, keep_contents=True)
    read, write, both, odd, empty = 0, 1, 2, 3, 0o1000
    for access in (read, write, both, odd):
        assert answer(openat, 3, 0, access, rules=rules, machine=machine) == ALLOW
        assert answer(openat, 3, 0, access | empty, rules=PROCESSES, machine=machine) == ALLOW
    for access in (write, both, write | 0o100, both | 0o2000000):
        assert answer(openat, 3, 0, access | empty, 0o644, rules=rules, machine=machine) == ALLOW
    for access in (read, odd, read | 0o100, read | 0o2000000):
        refused = answer(openat, 3, 0, access | empty, 0o644, rules=rules, machine=machine)
        assert refused == ERRNO | EPERM
    assert answer(truncate, 3, 0, rules=PROCESSES, machine=machine) == ALLOW
    assert answer(truncate, 3, 0, rules=rules, machine=machine) == ERRNO | EPERM
    made_as_owner = answer(openat, 3, 0, write | 0o100, 0o4755, rules=rules, machine=machine)
    assert made_as_owner == ERRNO | EPERM


@pytest.mark.parametrize("rules", [PRIVATE, SHARED, PROCESSES])
@pytest.mark.parametrize(("machine", "fcntl"), [("x86_64", 72), ("aarch64", 25)])
def test_nobody_has_to_wait_for_a_lease_of_a_cell(machine, fcntl, rules):
    for command in (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1025, 1030, 1031, 1032, 1033, 1034, 1038):
        assert answer(fcntl, 3, command, rules=rules, machine=machine) == ALLOW
    for command in (1024, 1026):
        assert answer(fcntl, 3, command, rules=rules, machine=machine) == ERRNO | EPERM
    for command in (1039, 1040, 1100, 0xFFFFFFFF):  # leases on folders, and what comes after
        assert answer(fcntl, 3, command, rules=rules, machine=machine) == ERRNO | EINVAL


@pytest.mark.parametrize("rules", [PRIVATE, SHARED, PROCESSES])
@pytest.mark.parametrize(
    ("machine", "numbers"), [("x86_64", (206, 253, 294)), ("aarch64", (0, 26))]
)
def test_what_all_programs_share_cannot_be_used_up(machine, numbers, rules):
    """Instances of inotify are counted for a user, asynchronous input for the machine."""
    for number in numbers:
        assert answer(number, 0, rules=rules, machine=machine) == ERRNO | ENOSYS


def test_towards_a_proxy_internet_streams_pass_and_nothing_else():
    rules = Filter(internet=True)
    assert answer(41, 2, 1, rules=rules) == ALLOW
    assert answer(41, 10, 1 | 0o2000000, rules=rules) == ALLOW
    for family, kind in ((2, 2), (2, 3), (10, 2), (16, 3), (17, 3)):
        assert answer(41, family, kind, rules=rules) == ERRNO | EOPNOTSUPP
    assert answer(53, 2, 1, rules=rules) == ERRNO | EOPNOTSUPP


@pytest.mark.parametrize("rules", [PRIVATE, SHARED])
@pytest.mark.parametrize(
    ("machine", "number", "before"),
    [("x86_64", 90, (1,)), ("x86_64", 91, (1,)), ("x86_64", 268, (1, 2)), ("x86_64", 452, (1, 2)),
     ("x86_64", 133, (1,)), ("x86_64", 259, (1, 2)), ("x86_64", 85, (1,)),
     ("x86_64", 2, (1, 0o101)), ("x86_64", 257, (1, 2, 0o102)), ("x86_64", 257, (1, 2, 0o20200002)),
     ("aarch64", 52, (1,)), ("aarch64", 53, (1, 2)), ("aarch64", 452, (1, 2)),
     ("aarch64", 33, (1, 2)), ("aarch64", 56, (1, 2, 0o102))],
)  # fmt: skip
def test_no_file_is_run_as_its_owner(rules, machine, number, before):
    """Neither by chmod nor by making it so."""
    for mode in (0o644, 0o1777, 0o100755, 0):
        assert answer(number, *before, mode, rules=rules, machine=machine) == ALLOW
    for mode in (0o4755, 0o2755, 0o6000, 0o106755):
        assert answer(number, *before, mode, rules=rules, machine=machine) == ERRNO | EPERM


def test_the_mode_counts_only_where_a_file_is_made():
    """Programs leave there what was there when they open a file that exists."""
    assert answer(257, 1, 2, 0o2, 0o6777) == ALLOW
    assert answer(2, 1, 0, 0xFFFF) == ALLOW


@pytest.mark.parametrize("machine", MACHINES)
def test_an_open_whose_mode_cannot_be_seen_does_not_exist(machine):
    assert answer(437, machine=machine) == ERRNO | ENOSYS


def test_limits_are_set_for_oneself_only():
    assert answer(302, 0, 7) == ALLOW
    assert answer(302, 1234, 7) == ERRNO | EPERM


def test_where_processes_are_shared_a_cell_slows_down_only_itself():
    assert answer(141, 0, 0, 10, rules=PROCESSES) == ALLOW
    for which, who in ((0, 1234), (1, 0), (2, 0), (2, 1000)):
        assert answer(141, which, who, 19, rules=PROCESSES) == ERRNO | EPERM
        assert answer(141, which, who, 19) == ALLOW
    for call in (142, 144, 314):  # sched_setparam, sched_setscheduler, sched_setattr
        assert answer(call, 0, 5, rules=PROCESSES) == ALLOW
        assert answer(call, 1234, 5) == ALLOW
        assert answer(call, 1234, 5, rules=PROCESSES) == ERRNO | EPERM
    assert answer(144, 1234, 0, rules=PROCESSES) == ALLOW  # the usual class: threads of libzmq
    assert answer(251, 1, 0, rules=PROCESSES) == ALLOW  # ioprio_set
    for which, who in ((1, 1234), (2, 0), (3, 0)):
        assert answer(251, which, who, rules=PROCESSES) == ERRNO | EPERM


def test_where_processes_are_shared_no_descriptor_signals_another_one():
    for command in (8, 10, 15):  # F_SETOWN, F_SETSIG, F_SETOWN_EX
        assert answer(72, 3, command) == ALLOW
        assert answer(72, 3, command, rules=PROCESSES) == ERRNO | EPERM
    for request in (0x8901, 0x8902):  # FIOSETOWN, SIOCSPGRP
        assert answer(16, 3, request) == ALLOW
        assert answer(16, 3, request, rules=PROCESSES) == ERRNO | EPERM


def test_a_terminal_is_not_fed_with_input():
    assert answer(16, 0, 0x5413) == ALLOW
    for code in (0x5412, 0x541C, 0x5423):
        assert answer(16, 0, code) == ERRNO | EPERM


def test_an_unknown_processor_is_an_error():
    with pytest.raises(SandboxError, match="sparc"):
        program(PRIVATE, "sparc")
