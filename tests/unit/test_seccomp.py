"""The filter, run by a small interpreter of classic BPF: which call gets which answer."""

from __future__ import annotations

import struct
from errno import ENOSPC, ENOSYS, EOPNOTSUPP, EPERM

import pytest

from kernel_agent.errors import SandboxError
from kernel_agent.sandbox.seccomp import Filter, program

ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
PRIVATE, SHARED = Filter(), Filter(shared_files=True, shared_ipc=True)


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


@pytest.mark.parametrize("rules", [PRIVATE, SHARED])
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
    assert answer(240) == ALLOW
    assert answer(240, rules=SHARED) == ERRNO | EPERM


def test_where_files_are_shared_no_folder_of_the_host_is_watched():
    assert answer(254) == ALLOW
    assert answer(254, rules=SHARED) == ERRNO | ENOSPC
    assert answer(27, rules=SHARED, machine="aarch64") == ERRNO | ENOSPC


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
    rules = Filter(shared_processes=True)
    assert answer(141, 0, 0, 10, rules=rules) == ALLOW
    for which, who in ((0, 1234), (1, 0), (2, 0), (2, 1000)):
        assert answer(141, which, who, 19, rules=rules) == ERRNO | EPERM
        assert answer(141, which, who, 19) == ALLOW


def test_a_terminal_is_not_fed_with_input():
    assert answer(16, 0, 0x5413) == ALLOW
    for code in (0x5412, 0x541C, 0x5423):
        assert answer(16, 0, code) == ERRNO | EPERM


def test_an_unknown_processor_is_an_error():
    with pytest.raises(SandboxError, match="sparc"):
        program(PRIVATE, "sparc")
