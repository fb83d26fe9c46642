"""Attacks on what all programs of a user, or of the machine, share: files that others must wait
for, and what there is only so much of. The host looks whether it still gets its own."""

import contextlib
import ctypes
import fcntl
import os
import signal
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

from attacks.cells.prelude import call, keep, kept, libc, stay
from attacks.score import either, returned
from attacks.stage import NotHere, Stage
from attacks.words import Effect, Report, attack

# --- files that others must wait for ---------------------------------------------------------


def _waits(stage: Stage, report: Report) -> str:
    """Tell that a program of the host would have to wait for one of these files."""
    for path in (stage.files["input"], stage.workspace / "held.txt", Path(sys.executable)):
        with contextlib.suppress(FileNotFoundError):
            try:
                os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
            except BlockingIOError:
                return f"whoever opens {path.name} waits up to 45 s"
    return ""


@attack("resource", _waits, own_kernel=True)
def leases(c):
    """Leases on an input, on a file of its own and on the interpreter: who opens them waits"""
    Path("held.txt").write_text("x")
    refused = None
    for path in ("held.txt", "data/table.csv", os.path.realpath(sys.executable)):
        try:
            descriptor = os.open(path, os.O_RDONLY)
            fcntl.fcntl(descriptor, 1024, fcntl.F_WRLCK)
            keep(descriptor)
        except OSError as error:
            refused = refused or error
    if not kept:
        raise refused
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    return f"{len(kept)} leases"


def _read_late(stage: Stage, report: Report) -> str:
    """Read such a file as the program does: it promises never to wait."""
    from kernel_agent.safe.root import Folder

    began = time.monotonic()
    with contextlib.suppress(OSError), Folder(stage.workspace) as folder:
        folder.read("held.txt", max_bytes=1000)
    seconds = time.monotonic() - began
    return f"the host's loop stood still for {seconds:.0f} s" if seconds > 5 else ""


@attack("resource", _read_late, own_kernel=True)
def lease_read_by_the_host(c):
    """A lease on a file that the host reads: its event loop asks again for 45 s"""
    Path("held.txt").write_text("x")
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    descriptor = os.open("held.txt", os.O_RDONLY)
    fcntl.fcntl(descriptor, 1024, fcntl.F_WRLCK)
    return keep(descriptor)


# --- what there is only so much of -----------------------------------------------------------


def _no_more(what: str, take: Callable[[], None]) -> Effect:
    """Tell that the host does not get one of its own any more."""

    def effect(stage: Stage, report: Report) -> str:
        try:
            take()
        except OSError as error:
            return f"the host gets no {what}: {error.strerror}"
        return ""

    return effect


def _host_inotify() -> None:
    from attacks.cells import prelude

    descriptor = prelude.libc.inotify_init()
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    os.close(descriptor)


@attack("resource", _no_more("instance of inotify", _host_inotify))
def inotify_instances(c):
    """Taking all of the user's instances of inotify"""
    for _ in range(2000):
        descriptor = libc.inotify_init()
        if descriptor < 0:
            break
        keep(descriptor)
    if not kept:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return f"{len(kept)} instances"


def _host_io() -> None:
    from attacks.cells import prelude

    context = ctypes.c_ulong(0)
    prelude.call("io_setup", 64, ctypes.byref(context))
    prelude.libc.syscall(1 if os.uname().machine == "aarch64" else 207, context)


@attack("resource", _no_more("asynchronous input and output", _host_io), own_kernel=True)
def asynchronous_events(c):
    """Taking all of the machine's events of asynchronous input and output (io_setup)"""
    taken, count = 0, 65536
    while count:
        context = ctypes.c_ulong(0)
        try:
            call("io_setup", count, ctypes.byref(context))
            taken += count
        except OSError:
            if count == 65536 and not taken:
                with contextlib.suppress(OSError):
                    call("io_setup", 1, ctypes.byref(ctypes.c_ulong(0)))
                    taken += 1
            count //= 2
    if not taken:
        raise PermissionError(1, "none was given")
    return f"{taken} events"


def _host_queue() -> None:
    from attacks.cells import prelude

    name = f"ka-host-{os.getpid()}"
    os.close(prelude.call("mq_open", name.encode(), os.O_CREAT | os.O_RDWR, 0o600, None))
    _unlink_queue(name)


def _unlink_queue(name: str) -> None:
    from attacks.cells import prelude

    prelude.libc.syscall(181 if os.uname().machine == "aarch64" else 241, name.encode())


def _queues_taken(stage: Stage, report: Report) -> str:
    """Tell that the host gets none; then remove those that outlive their sandbox, or its lack."""
    seen = _no_more("message queue", _host_queue)(stage, report)
    for number in range(100):
        _unlink_queue(f"{stage.token}-{number}")
    return seen


@attack("resource", _queues_taken, own_kernel=True)
def message_queue_bytes(c):
    """Taking all that the user may have in POSIX message queues"""
    made, last = 0, None
    for number in range(100):
        name = f"{c.token}-{number}".encode()
        try:
            keep(call("mq_open", name, os.O_CREAT | os.O_RDWR, 0o600, None))
            made += 1
        except PermissionError as error:  # it may have been made all the same
            last = error
        except OSError as error:
            last = error
            break
    if not made:
        raise last
    return f"{made} queues"


def _host_timer() -> None:
    from attacks.cells import prelude

    timer = ctypes.c_int()
    prelude.call("timer_create", 1, None, ctypes.byref(timer))
    prelude.libc.syscall(111 if os.uname().machine == "aarch64" else 226, timer.value)


@attack("resource", _no_more("timer", _host_timer), own_kernel=True)
def pending_signals(c):
    """Taking all of the user's timers and signals that wait (RLIMIT_SIGPENDING)"""

    def take():
        taken = 0
        with contextlib.suppress(OSError):
            while taken < 300_000:
                call("timer_create", 1, None, ctypes.byref(ctypes.c_int()))
                taken += 1
        return f"{taken} timers"

    return stay(take)


def _host_terminal() -> None:
    for descriptor in os.openpty():
        os.close(descriptor)


@attack("resource", _no_more("terminal", _host_terminal), own_kernel=True)
def terminals_taken(c):
    """Taking all of the machine's pseudo-terminals, in many children"""
    for _ in range(25):

        def take():
            pairs = 0
            with contextlib.suppress(OSError):
                while pairs < 450:
                    os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY)
                    pairs += 1
            return f"{pairs}"

        said = stay(take)
    return f"the last child got {said}"


# --- of other programs, by a number that can be guessed --------------------------------------


def _segment(stage: Stage) -> dict[str, object]:
    from attacks.cells import prelude

    identifier = prelude.call("shmget", 0, 4096, 0o1000 | 0o644)
    prelude.libc.shmat.restype = ctypes.c_void_p
    address = prelude.libc.shmat(identifier, None, 0)
    secret = stage.secret("segment_by_number").encode()
    ctypes.memmove(address, secret, len(secret))
    stage._ending.callback(prelude.libc.shmctl, identifier, 0, None)
    return {"identifier": identifier}


@attack("read", returned("segment_by_number"), before=_segment)
def segment_by_its_number(c):
    """A System V segment of another program, by its identifier and not by its name"""
    libc.shmat.restype = ctypes.c_void_p
    address = libc.shmat(c.identifier, None, 0o10000)
    if address in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), "shmat")
    return ctypes.string_at(address, 64)


def _queue(stage: Stage) -> dict[str, object]:
    from attacks.cells import prelude

    identifier = prelude.call("msgget", 0, 0o1000 | 0o666)
    text = stage.secret("queue_by_number").encode()
    message = ctypes.create_string_buffer(struct.pack("q", 1) + text)
    if prelude.libc.msgsnd(identifier, message, len(text), 0o4000) != 0:
        raise NotHere("no System V message queues here")
    stage._ending.callback(prelude.libc.msgctl, identifier, 0, None)
    return {"identifier": identifier}


@attack("read", returned("queue_by_number"), before=_queue)
def queue_by_its_number(c):
    """A message in a System V queue of another program, by the queue's identifier"""
    buffer = ctypes.create_string_buffer(200)
    call("msgrcv", c.identifier, buffer, 150, 0, 0o4000)
    return buffer.raw


def _semaphore(stage: Stage) -> dict[str, object]:
    from attacks.cells import prelude

    stage.semaphore = prelude.call("semget", 0, 1, 0o1000 | 0o666)  # type: ignore[attr-defined]
    stage._ending.callback(prelude.libc.semctl, stage.semaphore, 0, 0)  # type: ignore[attr-defined]
    return {"identifier": stage.semaphore}  # type: ignore[attr-defined]


def _counted(stage: Stage, report: Report) -> str:
    from attacks.cells import prelude

    value = prelude.libc.semctl(stage.semaphore, 0, 12)  # type: ignore[attr-defined]  # GETVAL
    return f"a semaphore of another program is {value}" if value > 0 else ""


@attack("write", _counted, before=_semaphore)
def semaphore_by_its_number(c):
    """Releasing a System V semaphore of another program, by its identifier"""
    operation = struct.pack("HhH", 0, 1, 0)
    call("semop", c.identifier, operation, 1)


# --- other programs' share of the machine ----------------------------------------------------


def _idle(stage: Stage, report: Report) -> str:
    pid = stage.victim.pid
    policy, usual = os.sched_getscheduler(pid), os.SCHED_OTHER
    if policy == usual:
        return ""
    stage.end_victim()
    return f"the victim's scheduling class is {policy}, not {usual}"


def _last(stage: Stage, report: Report) -> str:
    from attacks.cells import prelude

    number = 31 if os.uname().machine == "aarch64" else 252  # ioprio_get
    share = prelude.libc.syscall(number, 1, stage.victim.pid) >> 13
    if share != 3:  # IOPRIO_CLASS_IDLE
        return ""
    stage.end_victim()
    return "the victim gets the disk when nobody else wants it"


def _named(stage: Stage) -> dict[str, object]:
    _ = stage.victim
    return {}


@attack("process", either(_idle, _last), before=_named)
def only_when_idle(c):
    """Having a foreign process run, and reach its disk, only when nobody else wants to"""
    refused = None
    try:
        os.sched_setscheduler(c.victim, os.SCHED_IDLE, os.sched_param(0))
    except OSError as error:
        refused = error
    try:
        call("ioprio_set", 1, c.victim, 3 << 13)
    except OSError as error:
        if refused:
            raise PermissionError(1, f"{refused}; {error}") from None
    return ""
