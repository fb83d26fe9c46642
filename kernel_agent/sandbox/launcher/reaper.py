"""Clean up after a killed host: ``python -I -S reaper.py HOST_PID FOLDER…``.

One such process stands beside each host that has sandboxed kernels. It reads the private
directories of kernels from its standard input, ``+PATH`` when one starts and ``-PATH`` when its
host has cleaned up itself. When the host ends, whatever the way, it undoes what is left and ends,
too. When it starts it looks through ``FOLDER…`` for directories of hosts that ended together with
their reaper.

What there is to undo stands in ``undo.json`` in the private directory, where no kernel can reach
it: the host's process and a list of actions, each a word of :data:`ACTIONS` and its arguments
(:mod:`kernel_agent.safe.marks`). All of it ends in bounded time, whatever cells have left.
"""

from __future__ import annotations

import _signal  # what the module signal wraps; its enumerations take 4 ms to import
import os
import select
import stat
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # its import would double the start-up time
    from collections.abc import Callable

if __name__ == "__main__":  # alone, by its path
    _program = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    sys.path.insert(0, os.path.join(_program, "safe"))
    import marks  # type: ignore[import-not-found,unused-ignore]
    import removal  # type: ignore[import-not-found,unused-ignore]
    import walk  # type: ignore[import-not-found,unused-ignore]
else:
    from kernel_agent.safe import marks, removal, walk

born = marks.born
PATIENCE_S = 3.0
SWEEP_S = 20.0  # for what others have left; the rest is for the next reaper


def end(pid: str, start: str, number: str) -> None:
    """End a process and its group, if it is still the same one."""
    deadline = time.monotonic() + PATIENCE_S
    send(int(pid), start, int(number))
    while born(int(pid)) == start and not _is_dead(int(pid)) and time.monotonic() < deadline:
        time.sleep(0.01)
        if time.monotonic() > deadline - PATIENCE_S / 2:
            send(int(pid), start, _signal.SIGKILL)


def send(pid: int, start: str, number: int) -> None:
    """Send a signal to a process, SIGKILL to its group as well, if it is still the same one."""
    try:
        if born(pid) == start and start:
            os.kill(pid, number)
            if number == _signal.SIGKILL and os.getpgid(pid) == pid:
                os.killpg(pid, number)
    except ProcessLookupError:
        return


def _is_dead(pid: int) -> bool:
    """Whether it has ended and only waits for its parent to notice."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] in "ZX"
    except (OSError, IndexError):
        return True


def empty(cgroup: str) -> None:
    """Kill everything in a control group and those below it, and remove them."""
    for entry in os.scandir(cgroup) if os.path.isdir(cgroup) else ():
        if entry.is_dir(follow_symlinks=False):
            empty(entry.path)
    deadline = time.monotonic() + PATIENCE_S
    while os.path.isdir(cgroup) and time.monotonic() < deadline:
        try:
            with open(f"{cgroup}/cgroup.procs") as file:
                members = file.read().split()
            for pid in members:
                os.kill(int(pid), _signal.SIGKILL)
            os.rmdir(cgroup)
        except OSError:  # not empty yet, or gone already
            time.sleep(0.005)


def end_naming(directory: str) -> None:
    """Kill the processes that have a private directory in their command line.

    A container runtime's own, which leave every group and are nobody's children any more when
    their adopter was killed.
    """
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        found = [pid for pid in _processes() if _names(pid, directory)]
        for pid in found:
            try:
                os.kill(pid, _signal.SIGKILL)
            except OSError:  # it has ended, or is not ours
                continue
        if not found:
            return
        time.sleep(0.005)


def _processes() -> list[int]:
    others = (int(name) for name in os.listdir("/proc") if name.isdigit())
    return [pid for pid in others if pid not in (os.getpid(), os.getppid())]


def _names(pid: int, directory: str) -> bool:
    try:
        if os.stat(f"/proc/{pid}").st_uid != os.geteuid():
            return False
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return os.fsencode(directory) in file.read()
    except OSError:
        return False


def give_back(folder: str, uid: str, owner: str, group: str) -> None:
    """Return a folder that was given to a kernel's user, links neither followed nor trusted."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return
    try:
        if os.fstat(handle).st_uid != int(uid):
            return
        for at, entry in walk.entries(handle):
            found = entry.stat(follow_symlinks=False)
            # A hard link cannot lead outside: the kernel's user owns nothing there.
            if found.st_uid == int(uid):
                _unset_ids(entry.name, at, found.st_mode)
                os.chown(entry.name, int(owner), int(group), dir_fd=at, follow_symlinks=False)
        os.fchown(handle, int(owner), int(group))
    finally:
        os.close(handle)


def unset_ids(folder: str) -> None:
    """Take the bits from files by which they would be run as their owner."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        for at, entry in walk.entries(handle):
            _unset_ids(entry.name, at, entry.stat(follow_symlinks=False).st_mode)
    finally:
        os.close(handle)


def _unset_ids(name: str, at: int, mode: int) -> None:
    if stat.S_ISREG(mode) and mode & (stat.S_ISUID | stat.S_ISGID):
        os.chmod(name, stat.S_IMODE(mode) & 0o1777, dir_fd=at)


ACTIONS: dict[str, Callable[..., None]] = {
    "end": end, "empty": empty, "end-naming": end_naming, "give-back": give_back,
    "unset-ids": unset_ids,
}  # fmt: skip


def undo(actions: list[list[str]]) -> None:
    """Run a list of actions; a failing one does not keep the others from running."""
    for word, *arguments in actions:
        try:
            ACTIONS[word](*arguments)
        except OSError as error:
            os.write(2, f"kernel-agent: {word}: {error}\n".encode())


def remove(directory: str) -> None:
    """Carry out the undo actions in a kernel's private directory, then remove it."""
    try:
        folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            undo(marks.read(folder)["undo"])
        finally:
            os.close(folder)
    except (OSError, ValueError, KeyError, TypeError):
        pass  # it had not got so far
    removal.remove(directory, last=marks.RECORD)


def sweep(folder: str, until: float) -> None:
    """Remove the private directories of hosts that are gone, one by one, until a deadline."""
    with os.scandir(folder) as entries:
        found = [entry.path for entry in entries if entry.name.startswith(marks.PREFIX)]
    for path in found:
        if time.monotonic() > until:
            return
        if marks.is_left(path):
            remove(path)


def main(host: int, folders: list[str]) -> None:
    """Wait until the host has ended, then clean up after it."""
    _signal.signal(_signal.SIGINT, _signal.SIG_IGN)
    _signal.signal(_signal.SIGHUP, _signal.SIG_IGN)
    poller = select.poll()
    poller.register(0, select.POLLIN)
    try:
        poller.register(os.pidfd_open(host), select.POLLIN)
    except OSError:
        pass  # it has ended, so has its end of the pipe
    watched: set[str] = set()
    rest = b""
    until = time.monotonic() + SWEEP_S
    for folder in folders:
        sweep(folder, until)
    while True:
        ready = [descriptor for descriptor, _ in poller.poll()]
        piece = os.read(0, 65536) if 0 in ready else b""
        *lines, rest = (rest + piece).split(b"\0")
        for line in lines:
            path = os.fsdecode(line[1:])
            (watched.add if line[:1] == b"+" else watched.discard)(path)
        if not piece:
            break
    for directory in watched:
        remove(directory)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
