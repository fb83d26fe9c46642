"""The system call filter: classic BPF for the kernel's seccomp, assembled here without a library.

What it refuses, and how it answers:

* another architecture's calls, and x32 on x86-64: the process is killed;
* what reaches other processes, the kernel's own settings, new namespaces, or the newest and
  largest attack surfaces (``io_uring``, ``bpf``, ``userfaultfd`` …): ``EPERM``;
* file modes with the set-user-id or the set-group-id bit: ``EPERM``. Who owns on the disk what
  cells write may be somebody else, even root;
* ``clone3`` and ``openat2``, whose flags lie in memory that a filter cannot read, and every call
  that is newer than this table: ``ENOSYS``, on which C libraries fall back to older calls;
* what there is only so much of for all programs of a user, or of the machine: ``inotify`` (128
  instances a user) and ``io_setup`` (65,536 events a machine): ``ENOSYS``, on which programs look
  now and then instead;
* leases on files and watches of folders by ``fcntl``, and its commands that are newer than this
  table: anyone who opens a file under a lease waits 45 s, and a lease takes no right to write;
* ``socket`` of any family but unix: ``EOPNOTSUPP``. Not ``EPERM``: libzmq aborts on that when it
  asks for a loopback socket that it can do without (measured).

A level whose file tree is the host's asks for more: there ``connect`` and unix datagrams would
reach sockets of the host by their path, and files be emptied that may be read only, where Landlock
does not know of that yet. So does one whose processes are the host's: there a cell could have other
programs of the same user signalled, or slowed down.

The format is ``struct sock_filter`` (linux/filter.h); offsets are those of ``struct seccomp_data``.
System call numbers are those of the kernel's tables (arch/x86/entry/syscalls/syscall_64.tbl and
include/uapi/asm-generic/unistd.h).
"""

from __future__ import annotations

import platform
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from errno import EINVAL, ENOSYS, EOPNOTSUPP, EPERM
from functools import cache

from kernel_agent.errors import SandboxError

# linux/audit.h
_X86_64, _AARCH64, _RISCV64 = 0xC000003E, 0xC00000B7, 0xC00000F3
_X32_BIT = 0x40000000

# linux/seccomp.h
_ALLOW, _ERRNO, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000

# linux/bpf_common.h: BPF_LD|BPF_W|BPF_ABS, BPF_JMP|BPF_JEQ|BPF_K, …JGE…, …JSET…, BPF_ALU|BPF_AND|
# BPF_K, BPF_RET|BPF_K
_LOAD, _IF_EQUAL, _IF_AT_LEAST, _IF_ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06

# Offsets in struct seccomp_data; of the arguments only the low halves, which the calls use.
_NUMBER, _ARCHITECTURE, _ARGUMENT_0, _ARGUMENT_1, _ARGUMENT_2, _ARGUMENT_3 = 0, 4, 16, 24, 32, 40

NEWEST = 456
"""The highest number that is let through: ``futex_requeue`` (Linux 6.7). ``statmount``,
``listmount``, ``listns``, ``open_tree_attr`` and whatever comes after are refused."""

_NEW_NAMESPACES = 0x7E020000  # CLONE_NEWNS … CLONE_NEWNET
_AF_UNIX, _SOCK_STREAM, _SOCK_SEQPACKET, _SOCK_TYPE_MASK = 1, 1, 5, 0xF
_AF_INET, _AF_INET6 = 2, 10
_PRIO_PROCESS, _IOPRIO_WHO_PROCESS, _SCHED_OTHER = 0, 1, 0
_TERMINAL_TRICKS = (0x5412, 0x541C, 0x5423)  # ioctls TIOCSTI, TIOCLINUX, TIOCSETD
_OWNER_BY_IOCTL = (0x8901, 0x8902)  # FIOSETOWN, SIOCSPGRP: who gets SIGIO

# Commands of fcntl (include/uapi/linux/fcntl.h, asm-generic/fcntl.h).
_LEASE, _NOTIFY = 1024, 1026
_NEWEST_COMMAND = 1038  # F_SET_FILE_RW_HINT; 1040 is F_SETDELEG, leases on folders (Linux 6.19)
_OWNER = (8, 10, 15)  # F_SETOWN, F_SETSIG, F_SETOWN_EX

_SET_IDS = 0o6000  # S_ISUID, S_ISGID
_MAKES_A_FILE = 0o100 | 0o20000000  # O_CREAT, __O_TMPFILE
_EMPTIES, _ACCESS, _WRITES, _READS_AND_WRITES = 0o1000, 3, 1, 2  # O_TRUNC, O_ACCMODE …
_TRUNCATE = (76, 45)

# name: (x86-64, generic table used by aarch64 and riscv64); None where it has no number
_REFUSED: dict[str, tuple[int | None, int | None]] = {
    # other processes
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "kcmp": (312, 272), "pidfd_getfd": (438, 438), "process_madvise": (440, 440),
    "process_mrelease": (448, 448), "move_pages": (279, 239), "migrate_pages": (256, 238),
    # memory that no process shows and that stays without one; by its identifier, which can be
    # guessed, it is reached without the call that names it
    "shmget": (29, 194), "shmat": (30, 196), "shmdt": (67, 197), "shmctl": (31, 195),
    "semget": (64, 190), "semop": (65, 193), "semtimedop": (220, 192), "semctl": (66, 191),
    "msgget": (68, 186), "msgrcv": (70, 188), "msgsnd": (69, 189), "msgctl": (71, 187),
    "mq_open": (240, 180), "mq_unlink": (241, 181),
    # keys, which are shared beyond any namespace
    "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218),
    # file trees and namespaces
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "open_tree": (428, 428), "move_mount": (429, 429), "mount_setattr": (442, 442),
    "unshare": (272, 97), "setns": (308, 268),
    "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264),
    "fanotify_init": (300, 262), "fanotify_mark": (301, 263),
    "quotactl": (179, 60), "quotactl_fd": (443, 443), "nfsservctl": (180, 42),
    # large and often broken surfaces
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "memfd_secret": (447, 447), "lookup_dcookie": (212, 18), "modify_ldt": (154, None),
    "personality": (135, 92), "uselib": (134, None), "ustat": (136, None), "sysfs": (139, None),
    "_sysctl": (156, None), "iopl": (172, None), "ioperm": (173, None),
    # the machine
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "create_module": (174, None),
    "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "clock_adjtime": (305, 266),
    "adjtimex": (159, 171), "sethostname": (170, 161), "setdomainname": (171, 162),
    "syslog": (103, 116), "vhangup": (153, 58),
}  # fmt: skip

_WITH_ARGUMENTS = {
    "socket": (41, 198), "socketpair": (53, 199), "connect": (42, 203), "clone": (56, 220),
    "ioctl": (16, 29), "prlimit64": (302, 261), "setpriority": (141, 140), "fcntl": (72, 25),
    "ioprio_set": (251, 30), "sched_setscheduler": (144, 119),
}  # fmt: skip

_ABSENT: dict[str, tuple[int | None, int | None]] = {
    "clone3": (435, 435), "openat2": (437, 437),
    "inotify_init": (253, None), "inotify_init1": (294, 26), "io_setup": (206, 0),
}  # fmt: skip

# Of another process: its first argument names one, 0 is oneself.
_OF_ANOTHER = {"sched_setparam": (142, 118), "sched_setattr": (314, 274)}

# Numbers as above, then where the mode is. Not mkdir: Linux ignores these bits there.
_MODES: dict[str, tuple[int | None, int | None, int]] = {
    "chmod": (90, None, _ARGUMENT_1), "fchmod": (91, 52, _ARGUMENT_1),
    "fchmodat": (268, 53, _ARGUMENT_2), "fchmodat2": (452, 452, _ARGUMENT_2),
    "mknod": (133, None, _ARGUMENT_1), "mknodat": (259, 33, _ARGUMENT_2),
    "creat": (85, None, _ARGUMENT_1),
}  # fmt: skip

# The same, with where the flags are: without O_CREAT the mode is left to chance.
_OPENS: dict[str, tuple[int | None, int | None, int, int]] = {
    "open": (2, None, _ARGUMENT_1, _ARGUMENT_2), "openat": (257, 56, _ARGUMENT_2, _ARGUMENT_3),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Filter:
    """A level's additions to the common filter.

    Parameters
    ----------
    shared_files
        The file tree is the host's: unix sockets are not to be reached by path.
    shared_processes
        Processes of the same user outside can be named: they are not to be signalled by what
        happens to a descriptor, and their priority is not to be changed.
    internet
        The network namespace is empty but for a forwarder to the host's proxy: internet stream
        sockets are let through.
    keep_contents
        A file is not to be emptied by its path, nor by opening it to read.
    """

    shared_files: bool = False
    shared_processes: bool = False
    internet: bool = False
    keep_contents: bool = False


@cache
def program(rules: Filter, machine: str = "") -> bytes:
    """Return the filter as an array of ``struct sock_filter``.

    Parameters
    ----------
    rules
        What the level asks for.
    machine
        The architecture as ``uname -m`` names it; this machine's by default.

    Raises
    ------
    SandboxError
        There is no table for this architecture.
    """
    machine = machine or platform.machine()
    column, architecture = _architecture(machine)
    lines = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_IF_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL_PROCESS),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if machine == "x86_64":
        lines += [(_IF_AT_LEAST, 0, 1, _X32_BIT), (_RETURN, 0, 0, _KILL_PROCESS)]
    lines += [(_IF_AT_LEAST, 0, 1, NEWEST + 1), (_RETURN, 0, 0, _ERRNO | ENOSYS)]
    for block in _blocks(rules, column):
        lines += block
    lines.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("<HBBI", *line) for line in lines)


def _architecture(machine: str) -> tuple[int, int]:
    tables = {"x86_64": (0, _X86_64), "aarch64": (1, _AARCH64), "riscv64": (1, _RISCV64)}
    if machine not in tables:
        raise SandboxError(f"there is no system call table for {machine} processors")
    return tables[machine]


_Line = tuple[int, int, int, int]
_YES: _Line = (_RETURN, 0, 0, _ALLOW)


def _no(number: int) -> _Line:
    return (_RETURN, 0, 0, _ERRNO | number)


def _blocks(rules: Filter, column: int) -> Iterator[list[_Line]]:
    """Yield pieces that each begin and end with the call's number in the accumulator."""
    number = {name: numbers[column] for name, numbers in _WITH_ARGUMENTS.items()}
    refused = [numbers[column] for numbers in _REFUSED.values()]
    if rules.shared_files:
        refused.append(number["connect"])
    if rules.keep_contents:
        refused.append(_TRUNCATE[column])
    yield from (_when(n, [_no(EPERM)]) for n in refused if n is not None)
    absent = [numbers[column] for numbers in _ABSENT.values()]
    yield from (_when(n, [_no(ENOSYS)]) for n in absent if n is not None)
    yield from _modes(rules, column)
    yield _when(number["clone"], [
        (_LOAD, 0, 0, _ARGUMENT_0),
        (_IF_ANY_BIT, 0, 1, _NEW_NAMESPACES),
        _no(EPERM),
        _YES,
    ])  # fmt: skip
    # Of another process: a user may change the limits of all processes of theirs.
    yield _when(number["prlimit64"], _of_oneself(_ARGUMENT_0))
    if rules.shared_processes:
        yield from _priorities(number, column)
    tricks = _TERMINAL_TRICKS + (_OWNER_BY_IOCTL if rules.shared_processes else ())
    yield _when(number["ioctl"], _unless(tricks))
    commands = (_LEASE, _NOTIFY) + (_OWNER if rules.shared_processes else ())
    yield _when(number["fcntl"], [
        (_LOAD, 0, 0, _ARGUMENT_1),
        (_IF_AT_LEAST, 0, 1, _NEWEST_COMMAND + 1),
        _no(EINVAL),
        *_unless(commands)[1:],
    ])  # fmt: skip
    yield _when(number["socket"], _sockets(rules, internet=rules.internet))
    yield _when(number["socketpair"], _sockets(rules, internet=False))


def _priorities(number: Mapping[str, int], column: int) -> Iterator[list[_Line]]:
    """Allow a process to change its own priorities only, at no one else's cost."""
    for numbers in _OF_ANOTHER.values():
        yield _when(numbers[column], _of_oneself(_ARGUMENT_0))
    # The usual class is what libzmq asks for by the id of its own thread, and aborts without.
    yield _when(number["sched_setscheduler"], [
        (_LOAD, 0, 0, _ARGUMENT_1),
        (_IF_EQUAL, 0, 1, _SCHED_OTHER),
        _YES,
        *_of_oneself(_ARGUMENT_0),
    ])  # fmt: skip
    for name, own in (("setpriority", _PRIO_PROCESS), ("ioprio_set", _IOPRIO_WHO_PROCESS)):
        yield _when(number[name], [
            (_LOAD, 0, 0, _ARGUMENT_0),
            (_IF_EQUAL, 1, 0, own),
            _no(EPERM),
            *_of_oneself(_ARGUMENT_1),
        ])  # fmt: skip


def _of_oneself(argument: int) -> list[_Line]:
    return [(_LOAD, 0, 0, argument), (_IF_EQUAL, 1, 0, 0), _no(EPERM), _YES]


def _unless(values: Sequence[int]) -> list[_Line]:
    """Refuse these values of the second argument."""
    return [
        (_LOAD, 0, 0, _ARGUMENT_1),
        *((_IF_EQUAL, len(values) - i, 0, value) for i, value in enumerate(values)),
        _YES,
        _no(EPERM),
    ]


def _modes(rules: Filter, column: int) -> Iterator[list[_Line]]:
    """Allow file modes without the bits that run a file as its owner."""
    for *numbers, mode in _MODES.values():
        if (number := numbers[column]) is not None:
            yield _when(number, _plain(mode))
    for x86_64, generic, flags, mode in _OPENS.values():
        if (number := (x86_64, generic)[column]) is not None:
            plain = _plain(mode)
            makes: list[_Line] = [(_LOAD, 0, 0, flags), (_IF_ANY_BIT, 1, 0, _MAKES_A_FILE)]
            empties = _empties_to_read(flags) if rules.keep_contents else []
            yield _when(number, [*empties, *makes, _YES, *plain])


def _empties_to_read(flags: int) -> list[_Line]:
    """Refuse to empty a file that is not opened to write; what follows loads the flags anew."""
    return [
        (_LOAD, 0, 0, flags),
        (_IF_ANY_BIT, 0, 4, _EMPTIES),
        (_AND, 0, 0, _ACCESS),
        (_IF_EQUAL, 2, 0, _WRITES),
        (_IF_EQUAL, 1, 0, _READS_AND_WRITES),
        _no(EPERM),
    ]


def _plain(mode: int) -> list[_Line]:
    return [
        (_LOAD, 0, 0, mode),
        (_IF_ANY_BIT, 0, 1, _SET_IDS),
        _no(EPERM),
        _YES,
    ]


def _sockets(rules: Filter, *, internet: bool) -> list[_Line]:
    """Allow unix sockets (connected kinds only on a shared file tree), and TCP if asked."""
    streams: list[_Line] = [
        (_LOAD, 0, 0, _ARGUMENT_1),
        (_AND, 0, 0, _SOCK_TYPE_MASK),
        (_IF_EQUAL, 1, 0, _SOCK_STREAM),
        (_IF_EQUAL, 0, 1, _SOCK_SEQPACKET),
        _YES,
        _no(EOPNOTSUPP),
    ]
    # Unix datagrams are sent to a path without connecting.
    unix = streams if rules.shared_files else [_YES]
    rest: list[_Line] = [_no(EOPNOTSUPP)]
    if internet:
        rest = [
            (_IF_EQUAL, 1, 0, _AF_INET),
            (_IF_EQUAL, 0, len(streams), _AF_INET6),
            *streams,
            *rest,
        ]
    return [(_LOAD, 0, 0, _ARGUMENT_0), (_IF_EQUAL, 0, len(unix), _AF_UNIX), *unix, *rest]


def _when(number: int, then: list[_Line]) -> list[_Line]:
    """Apply ``then`` to one call; it always returns, so the accumulator is untouched after it."""
    return [(_IF_EQUAL, 0, len(then), number), *then]
