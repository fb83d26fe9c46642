"""Attacks on processes that are not the kernel's, and on its own end."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from attacks.cells.prelude import call
from attacks.score import signalled, victim_changed, victim_ended
from attacks.stage import NotHere, Stage
from attacks.words import Report, attack


def _victim(stage: Stage) -> dict[str, object]:
    assert stage.victim
    return {}


@attack("process", victim_ended, before=_victim)
def kill_a_process(c):
    """Killing a process of the same user"""
    os.kill(c.victim, signal.SIGKILL)


@attack("process", victim_ended, before=_victim)
def kill_by_pidfd(c):
    """Killing a process by pidfd_send_signal"""
    call("pidfd_send_signal", os.pidfd_open(c.victim), 9, None, 0)


@attack("process", victim_ended, before=_victim)
def kill_by_thread(c):
    """Killing a process by tgkill and by an asynchronous descriptor's owner"""
    import fcntl

    with contextlib.suppress(OSError):
        number = 131 if os.uname().machine == "aarch64" else 234
        if ctypes.CDLL(None).syscall(number, c.victim, c.victim, 9) == 0:
            return "sent"
    left, right = os.pipe()
    fcntl.fcntl(left, 8, c.victim)  # F_SETOWN
    fcntl.fcntl(left, 10, 9)  # F_SETSIG: SIGKILL
    fcntl.fcntl(left, 4, fcntl.fcntl(left, 3) | 0o20000)  # O_ASYNC
    os.write(right, b"x")
    time.sleep(0.2)
    return ""


@attack("process", signalled)
def signal_a_group(c):
    """Signalling the host's process group"""
    os.killpg(c.host_group, signal.SIGUSR1)


@attack("process", signalled)
def signal_the_host(c):
    """Signalling the host's process and its own parents"""
    refused = ""
    for pid in (c.host_pid, os.getppid()):
        try:
            if pid > 1:
                os.kill(pid, signal.SIGUSR2)
        except OSError as error:
            refused = str(error)
    if refused:
        raise PermissionError(1, refused)
    return ""


@attack("process", victim_changed, before=_victim)
def write_memory(c):
    """Writing into a foreign process's memory, by /proc/*/mem"""
    with open(f"/proc/{c.victim}/mem", "r+b", buffering=0) as memory:
        memory.seek(c.victim_address)
        memory.write(c.token.encode())


@attack("process", victim_changed, before=_victim)
def write_memory_by_process_vm_writev(c):
    """Writing into a foreign process's memory, by process_vm_writev"""
    buffer = ctypes.create_string_buffer(c.token.encode())
    local = (ctypes.c_size_t * 2)(ctypes.addressof(buffer), len(c.token))
    remote = (ctypes.c_size_t * 2)(c.victim_address, len(c.token))
    call("process_vm_writev", c.victim, local, 1, remote, 1, 0)


def _limited(stage: Stage, report: Report) -> str:
    limits = Path(f"/proc/{stage.victim.pid}/limits").read_text().splitlines()
    files = next(line for line in limits if line.startswith("Max open files")).split()
    if files[3:5] != ["7", "7"]:
        return ""
    stage.end_victim()
    return "the victim may open only 7 files"


@attack("process", _limited, before=_victim)
def limits_of_a_process(c):
    """Setting a foreign process's limits"""
    import resource

    resource.prlimit(c.victim, resource.RLIMIT_NOFILE, (7, 7))


def _priority(stage: Stage, report: Report) -> str:
    nice = os.getpriority(os.PRIO_PROCESS, stage.victim.pid)
    if nice == 0:
        return ""
    stage.end_victim()
    return f"the victim's priority is {nice}"


@attack("process", _priority, before=_victim)
def slow_a_process_down(c):
    """Taking a foreign process's priority away"""
    os.setpriority(os.PRIO_PROCESS, c.victim, 19)


def _score_adjusted(stage: Stage, report: Report) -> str:
    now = int(Path(f"/proc/{stage.victim.pid}/oom_score_adj").read_text())
    if now <= stage.score:  # type: ignore[attr-defined]
        return ""
    stage.end_victim()
    return "the victim will be the first to be killed when memory runs out"


def _score(stage: Stage) -> dict[str, object]:
    stage.score = int(Path(f"/proc/{stage.victim.pid}/oom_score_adj").read_text())  # type: ignore[attr-defined]
    if stage.score >= 1000:  # type: ignore[attr-defined]
        raise NotHere("every process here has the highest score already")
    return {}


@attack("process", _score_adjusted, before=_score)
def offer_a_process(c):
    """Making a foreign process the one that is killed when memory runs out"""
    Path(f"/proc/{c.victim}/oom_score_adj").write_text("1000")


def _daemon(stage: Stage, report: Report) -> str:
    """End the session, and see whether the process that it left still works."""
    time.sleep(0.3)
    beats = []
    for _ in range(2):
        with contextlib.suppress(OSError):
            beats.append((stage.workspace / f"beat-{stage.token}").stat().st_mtime_ns)
        time.sleep(0.6)
    return "a process outlives the kernel" if len(set(beats)) == 2 else ""


@attack("process", _daemon, own_kernel=True)
def daemon(c):
    """A double-forked process that outlives the kernel"""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)  # not to end with its parent
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            for _ in range(200):
                with contextlib.suppress(OSError):
                    Path(f"beat-{c.token}").write_text("x")
                time.sleep(0.1)
        os._exit(0)
    time.sleep(0.3)
    return "a process of its own"


def _identity(stage: Stage, report: Report) -> str:
    """See whether a process of the sandbox has other identities or capabilities on the host."""
    for pid in stage.kernel_pids():
        with contextlib.suppress(OSError):
            fields = dict(
                line.split(":\t", 1)
                for line in Path(f"/proc/{pid}/status").read_text().splitlines()
                if ":\t" in line
            )
            if stage.token[:12] in fields["Name"]:
                uids = set(fields["Uid"].split())
                if uids != {str(stage.uid)}:
                    return f"a process of the sandbox has the ids {sorted(uids)}"
    return ""


@attack(
    "process",
    _identity,
    no_control="a set-user-id program asks for a password; the attack is on the launcher's own ids",
)
def become_another_user(c):
    """Becoming another user, by setuid, setpriv, su and sudo"""
    refused = []
    code = f"import ctypes,time;ctypes.CDLL(None).prctl(15,b'{c.token[:12]}',0,0,0);time.sleep(3)"
    for uid in (0, 1, 1000):
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(OSError):
                os.setresuid(uid, uid, uid)
                ctypes.CDLL(None).prctl(15, c.token[:12].encode(), 0, 0, 0)
                time.sleep(2)
            os._exit(0)
        for _ in range(100):
            time.sleep(0.01)
            if os.waitpid(pid, os.WNOHANG) != (0, 0):
                break
        else:
            return f"became {uid}"
        refused.append(f"setuid {uid} refused")
    for command in (["su", "-c"], ["sudo", "-n", "sh", "-c"]):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.Popen([*command, f"{sys.executable} -c {code!r}"], stdin=subprocess.DEVNULL)
    time.sleep(0.2)
    raise PermissionError(1, ", ".join(refused))
