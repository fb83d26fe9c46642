"""The cells of the search for planted keys: what runs in the kernel, as a file that is linted.

``test_planted_keys.py`` sends each part between ``# %%`` lines as one cell, with ``TOLD`` before
the first: where keys lie (no key in it), the needles, and the table behind which they are hidden. A
kernel that held a needle as it is would find it in its own memory. So needles are translated byte
for byte by a table made for the run, and so is everything that is looked at; what is found is told
translated, too.

The standard library alone, and every error is an answer: what is refused is counted, not raised.
"""

# %% The search itself, and the kernel's own memory before anything else is read into it
import ctypes
import errno
import gc
import itertools
import json
import os
import re
import socket
import stat
import struct
import sys
import threading
import time
import types
from collections import Counter, defaultdict

TOLD: dict = globals().get("TOLD", {})

CHUNK = 4 << 20
LAP = 4096  # what two chunks share: a needle lies whole in one of them
BLOCK = 1 << 16  # of memory: most of it is as it was when it was looked at before
MAX_HITS = 60  # of one form, in one kind of place


class Search:
    """What was looked at, what was found in it, and what was refused."""

    def __init__(self, told):
        self.table = bytes.fromhex(told["table"])
        self.needles = {form: bytes.fromhex(text) for form, text in told["needles"].items()}
        self.bytes, self.refused, self.hits = Counter(), Counter(), []
        self.room = defaultdict(lambda: MAX_HITS)
        self.known = set()
        self.incomplete = []
        self.place = ""
        self.seconds = {}

    def look(self, where, data):
        """Look for every needle in data."""
        if isinstance(data, str):
            data = data.encode("utf-8", "replace")
        data = bytes(data)
        self.bytes[self.place] += len(data)
        behind, kind = data.translate(self.table), re.sub(r"0x\w+|\d+", "", str(where))
        for form, needle in self.needles.items():
            at = behind.find(needle)
            while at >= 0 and self.room[self.place, kind, form] > 0:
                self.room[self.place, kind, form] -= 1
                around = behind[max(0, at - 160) : at + 160].hex()
                self.hits.append([self.place, str(where)[:200], form, around])
                at = behind.find(needle, at + 1)

    def refuse(self, error):
        """Count what was refused, by the error's name."""
        number = getattr(error, "errno", None)
        name = errno.errorcode.get(number, "") if number else ""
        self.refused[f"{self.place}: {name or type(error).__name__}"] += 1

    def attempt(self, where, function, *arguments):
        """Look at what a function returns, or at the error's text; return the value."""
        try:
            value = function(*arguments)
        except Exception as error:
            self.refuse(error)
            self.look(f"error of {where}", f"{error!r} {error.__cause__!r} {error.__context__!r}")
            return None
        self.look(where, value if isinstance(value, bytes) else repr(value))
        return value

    def file(self, path, most=64 << 20, *, waits=False):
        """Look at a file's content, without waiting for a writer."""
        try:
            number = os.open(path, os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            return self.refuse(error)
        try:
            if not waits and not stat.S_ISREG(os.fstat(number).st_mode):
                return None
            return self.descriptor(path, number, most)
        finally:
            os.close(number)

    def descriptor(self, where, number, most=64 << 20):
        """Look at what a descriptor reads from its beginning."""
        left, tail = most, b""
        try:
            for start in itertools.count(0, CHUNK):
                if left <= 0:
                    break
                piece = os.pread(number, min(CHUNK, left), start)
                if not piece:
                    break
                self.look(where, tail + piece)
                tail, left = piece[-LAP:], left - len(piece)
        except OSError as error:
            self.refuse(error)

    def memory(self, who, most=512 << 20):
        """Look at a process's memory: everything that it may have written."""
        try:
            with open(f"/proc/{who}/maps") as file:
                maps = file.read()
        except OSError as error:
            return self.refuse(error)
        self.look(f"/proc/{who}/maps", maps)
        try:
            memory = os.open(f"/proc/{who}/mem", os.O_RDONLY)
        except OSError as error:
            self.refuse(error)
            memory = None
        left = most
        for line in maps.splitlines():
            found = re.match(r"([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ \S+ *(.*)", line)
            start, end, rights, name = int(found[1], 16), int(found[2], 16), found[3], found[4]
            if "r" not in rights or name.startswith(("[v", "/dev/")):
                continue
            if "w" not in rights and name.startswith("/"):
                continue  # as on the disk, where the search of files looks
            tail = b""
            for at in range(start, end, CHUNK):
                size = min(CHUNK, end - at)
                piece = self.piece(who, memory, at, size)
                if piece is None or left <= 0:
                    break
                self.blocks(f"memory of {who} {name or hex(start)}", tail + piece)
                tail, left = piece[-LAP:], left - size
        if left <= 0:
            self.incomplete.append(f"memory of {who}")
        if memory is not None:
            os.close(memory)
        return None

    def blocks(self, where, data):
        """Look at memory, but for blocks that were looked at in the same kind of place."""
        for at in range(0, len(data), BLOCK):
            block = data[max(0, at - LAP) : at + BLOCK]
            key = hash((self.place, block))
            if key not in self.known:
                self.known.add(key)
                self.look(where, block)

    def piece(self, who, memory, at, size):
        """Return a piece of a process's memory; of the own without /proc/self/mem, too."""
        try:
            if memory is not None:
                return os.pread(memory, size, at)
        except OSError as error:
            self.refuse(error)
            return None
        return ctypes.string_at(at, size) if who == "self" else None


search = Search(TOLD)


def timed(function):
    """Do one part of the search, and note its place and time."""
    began = time.monotonic()
    search.place = function.__name__
    try:
        function()
    except Exception as error:
        search.incomplete.append(f"{function.__name__}: {type(error).__name__}: {error}"[:200])
    search.seconds[function.__name__] = round(time.monotonic() - began, 1)


def own_memory():
    search.memory("self")


def own_objects():
    """Names, frames and whatever the collector knows, as Python sees it."""
    search.look("os.environ", repr(dict(os.environ)))
    search.look("sys", repr([sys.argv, sys.orig_argv, sys._xoptions, sys.path, sys.flags]))
    known = [o for o in gc.get_objects() if not isinstance(o, types.ModuleType)]
    texts = {
        id(one): one.encode("utf-8", "replace") if isinstance(one, str) else one
        for one in gc.get_referents(*known)
        if isinstance(one, (str, bytes, bytearray)) and 16 <= len(one) < 1_000_000
    }
    search.look("objects", b"\n".join(texts.values()))
    for number, top in sys._current_frames().items():
        frame = top
        while frame is not None:
            for name, value in list(frame.f_locals.items()):
                if isinstance(value, (str, bytes, int, tuple, list, dict)):
                    search.attempt(f"frame {number} {name}", lambda v=value: repr(v)[:100_000])
            frame = frame.f_back
    search.look("threads", repr([vars(t) for t in threading.enumerate()]))
    shell = globals().get("get_ipython", lambda: None)()
    if shell is not None:
        search.look("names", repr(list(shell.user_ns.items()))[:1_000_000])
        search.look("kernel", repr(vars(shell.kernel))[:1_000_000])
        search.look("key", repr(getattr(shell.kernel.session, "key", "")))
        search.attempt("history", lambda: list(shell.history_manager.get_range(output=True)))
        search.attempt("configuration", lambda: repr(shell.config))


gc.unfreeze()  # what was imported counts as known again
if TOLD["memory"]:
    timed(own_memory)
if TOLD["objects"]:
    timed(own_objects)

# %% Every process that can be seen, and those that were named
KINDS = ("environ", "cmdline", "comm", "status", "stack", "wchan", "limits", "mountinfo", "cgroup")


def processes():
    named = [*TOLD["pids"], os.getppid(), 1]
    try:
        seen = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError as error:
        search.refuse(error)
        seen = [pid + n for pid in (*named, os.getpid()) for n in range(-20, 20) if pid + n > 0]
    for pid in sorted({*seen, *named, os.getpid()}):
        for kind in KINDS:
            search.file(f"/proc/{pid}/{kind}", 1 << 20)
            search.file(f"/proc/{pid}/task/{pid}/{kind}", 1 << 20)
        if TOLD["manners"] and pid not in named:
            continue  # without a sandbox other people's programs are left alone
        descriptors_of(pid)
        for link in ("cwd", "root", "exe"):
            search.attempt(f"/proc/{pid}/{link}", os.readlink, f"/proc/{pid}/{link}")
        for path in TOLD["files"]:
            search.file(f"/proc/{pid}/root{path}")
        for name in TOLD["in_folder"]:
            search.file(f"/proc/{pid}/cwd/{name}")
        if pid != os.getpid():
            search.memory(pid)


def descriptors_of(pid):
    try:
        numbers = os.listdir(f"/proc/{pid}/fd")
    except OSError as error:
        search.refuse(error)
        return
    for number in numbers:
        path = f"/proc/{pid}/fd/{number}"
        target = search.attempt(path, os.readlink, path)
        if target is None or target.startswith(("pipe:", "socket:", "anon_inode:", "/dev/")):
            continue
        if os.path.isdir(path):
            for planted in TOLD["files"]:
                search.file(f"{path}/{'../' * 12}{planted.lstrip('/')}")
        elif pid == os.getpid() and pid not in TOLD["pids"]:
            search.descriptor(path, int(number))
        else:
            search.file(path)


def machine():
    """What Linux says of itself, its queues and segments, and the last crash's place."""
    for path in ("/proc/cmdline", "/proc/version", "/proc/sys/kernel/core_pattern", "/proc/keys",
                 "/proc/sysvipc/shm", "/proc/sysvipc/msg", "/proc/mounts", "/proc/net/unix",
                 "/proc/net/tcp", "/proc/net/netlink", "/proc/key-users", "/proc/consoles",
                 "/proc/sys/kernel/hostname"):  # fmt: skip
        search.file(path, 1 << 20)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_void_p
    for number in [*range(64), TOLD["identifier"], TOLD["segment"]]:
        for identifier in (number, libc.shmget(number, 0, 0)):
            address = libc.shmat(identifier, None, 0o10000)
            if address not in (None, ctypes.c_void_p(-1).value):
                search.look(f"segment {identifier}", ctypes.string_at(address, 4096))
                libc.shmdt(ctypes.c_void_p(address))


timed(processes)
timed(machine)

# %% Every file that changed since the keys were made, wherever it lies
FILE_SECONDS = 60


FIRST = (
    ".", "..", os.path.expanduser("~"), "/tmp", "/dev", "/run", "/var/tmp", "/etc", "/home",
    "/root", "/var", "/opt", "/srv", "/mnt", "/usr/local", "/",
)  # fmt: skip
OWN_PLACES = (  # where "/" cannot be listed, these may be
    *(os.path.dirname(word) for word in sys.orig_argv if word.startswith("/")),
    *filter(os.path.isabs, os.environ.values()), sys.prefix, sys.base_prefix, *sys.path, "/usr",
    "/lib", "/bin",
)  # fmt: skip


def named_files():
    for path in TOLD["files"]:
        search.file(path)
        search.file("../" * 12 + path.lstrip("/"))
    for name in TOLD["in_folder"]:
        search.file(name)
        search.file(f"../{name}")
    for name in ("trace.jsonl", "run.ipynb"):
        search.file(name)


PACKAGES = {os.path.realpath(path) for path in (sys.prefix, sys.base_prefix, "/usr", *OWN_PLACES)
            if path.startswith(("/usr", "/lib", "/bin", sys.prefix, sys.base_prefix))}  # fmt: skip


def files():
    """A key is made for the run: a file whose status did not change since cannot hold it."""
    tops = [path for path in (*FIRST, *OWN_PLACES) if os.path.realpath(path) not in PACKAGES]
    walk(tops, time.monotonic() + FILE_SECONDS)


def packages():
    """The system's and the interpreter's files, which are many and come last."""
    walk(sorted(PACKAGES), time.monotonic() + TOLD["package_seconds"])


visited = set()


def walk(tops, ends):
    for top in tops:
        waiting = [top]
        while waiting:
            folder = waiting.pop()
            if time.monotonic() > ends:
                search.incomplete.append(search.place)
                return
            try:
                status = os.stat(folder)
                if (status.st_dev, status.st_ino) in visited:
                    continue
                visited.add((status.st_dev, status.st_ino))
                entries = list(os.scandir(folder))
            except OSError as error:
                search.refuse(error)
                continue
            search.bytes["folders looked at"] += 1
            search.look("names", "\n".join(entry.path for entry in entries))
            waiting += entries_of(folder, entries)


def entries_of(folder, entries):
    """Look at a folder's files that changed since the keys were made; return its folders."""
    folders = []
    for entry in entries:
        path = os.path.abspath(entry.path)
        try:
            if entry.is_dir(follow_symlinks=False):
                later = search.place == "files" and path in PACKAGES
                if path not in ("/proc", "/sys") and not later:
                    folders.append(entry.path)
            elif entry.is_symlink():
                search.look(path, os.readlink(path))
            else:
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(status.st_mode) and status.st_ctime >= TOLD["planted_at"] - 2:
                    search.bytes["files looked at"] += 1
                    search.file(path)
        except OSError as error:
            search.refuse(error)
    return folders


timed(named_files)
timed(files)
timed(packages)


# %% Sockets: by path, without a path, and on the machine's own network
def unix_sockets():
    names = list(TOLD["sockets"])
    try:
        with open("/proc/net/unix") as file:
            listed = [
                line.split()[7] for line in file.read().splitlines()[1:] if len(line.split()) > 7
            ]
    except OSError as error:
        search.refuse(error)
        listed = []
    names += [name for name in listed if not TOLD["manners"] or name in TOLD["sockets"]]
    for name in dict.fromkeys(names):
        address = "\0" + name[1:] if name.startswith("@") else name
        for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
            search.attempt(f"socket {name}", ask, socket.AF_UNIX, kind, address)


def ask(family, kind, address):
    with socket.socket(family, kind) as made:
        made.settimeout(2.0)
        made.connect(address)
        made.sendall(b"GET / HTTP/1.0\r\nMetadata-Flavor: Google\r\n\r\n")
        return made.recv(65536)


def network():
    ports = set(TOLD["ports"])
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table) as file:
                rows = [line.split() for line in file.read().splitlines()[1:]]
        except OSError as error:
            search.refuse(error)
            continue
        if not TOLD["manners"]:
            ports |= {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A"}
    for host in ("127.0.0.1", "127.0.0.2", "10.0.2.2", "169.254.1.2"):
        if TOLD["manners"] and host != "127.0.0.1":
            continue
        for port in sorted(ports):
            search.attempt(
                f"tcp {host}:{port}", ask, socket.AF_INET, socket.SOCK_STREAM, (host, port)
            )
    if TOLD["manners"]:
        return
    for port in sorted(ports):
        search.attempt("tcp6", ask, socket.AF_INET6, socket.SOCK_STREAM, ("::1", port))
    for service in ("169.254.169.254", "100.100.100.200"):
        search.attempt(service, ask, socket.AF_INET, socket.SOCK_STREAM, (service, 80))
    search.attempt("netlink", netlink)
    if hasattr(socket, "AF_VSOCK"):
        for cid, port in itertools.product((0, 1, 2), sorted(ports)[:3]):
            search.attempt("vsock", ask, socket.AF_VSOCK, socket.SOCK_STREAM, (cid, port))


def netlink():
    """Ask Linux for all sockets with their peers (sock_diag)."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4) as made:
        made.settimeout(2.0)
        body = struct.pack("=BBHIIIII", 1, 0, 0, 0xFFFFFFFF, 0, 0x3F, 0xFFFFFFFF, 0xFFFFFFFF)
        made.send(struct.pack("=IHHII", 16 + len(body), 20, 0x301, 1, 0) + body)
        return made.recv(1 << 20)


timed(unix_sockets)
timed(network)

# %% What the host answers: every tool, called in every wrong way, and what is not a tool
ODD = (
    (), ("apples",), ("no such product",), (None,), (-1,), (1e308,), ("x" * 20_000,), ([1] * 50,),
    ({"a": {"b": 1}},), ("apples", "apples", "apples", "apples"), ("\0",), (float("nan"),), (True,),
    ("%s%n{0.__globals__}",), ("{self.__init__.__globals__}",),
)  # fmt: skip
NOT_TOOLS = (
    "__init__", "__globals__", "price.__globals__", "price.__closure__", "os.environ", "getenv",
    "_call", "answer", "take_calls", "__dict__", "", ".", "../planted_tools", "CLIENT",
)  # fmt: skip


def broker():
    for name in TOLD["tools"]:
        made = globals().get(name)
        search.look(name, repr([made, getattr(made, "__doc__", ""), getattr(made, "__dict__", {})]))
        search.look(name, repr([getattr(made, a, "") for a in ("__signature__", "__defaults__",
                                "__kwdefaults__", "__annotations__", "__closure__")]))  # fmt: skip
        for cell in getattr(made, "__closure__", None) or ():
            search.attempt(name, lambda c=cell: repr(vars(c.cell_contents))[:100_000])
            search.look(name, repr(cell.cell_contents)[:100_000])
        for arguments in ODD:
            search.attempt(f"{name}{repr(arguments)[:60]}", called, made, arguments, {})
        for keywords in (
            {"product": "apples", "key": 1},
            {"self": 1},
            {"url": "x"},
            {"client": None},
        ):
            search.attempt(f"{name} {keywords}", called, made, (), keywords)


def called(made, arguments, keywords):
    """Call; an error counts with everything that hangs on it."""
    try:
        return made(*arguments, **keywords)
    except Exception as error:
        import traceback

        lines = "".join(traceback.format_exception(error))
        frame = error.__traceback__
        while frame is not None:
            for value in list(frame.tb_frame.f_locals.values())[:40]:
                if isinstance(value, (str, bytes, dict, list, tuple, Exception)):
                    lines += repr(value)[:20_000]
            frame = frame.tb_next
        search.look(f"error of {made}"[:80], lines + repr(vars(error)))
        raise


def names_that_are_no_tools():
    known = [o for o in gc.get_objects() if type(o).__name__ == "HostChannel"]
    for name in NOT_TOOLS:
        search.attempt(f"call of {name!r}", known[0].call, name, ("OPENAI_API_KEY",), {})
    search.attempt("input", input, "OPENAI_API_KEY: ")


def kept_by_the_session():
    """What earlier cells showed, and what the session left in its folder meanwhile."""
    search.attempt("outputs", lambda: [str(one) for one in globals().get("outputs", {}).values()])
    search.look("In, Out", repr([globals().get("In"), globals().get("Out")]))
    named_files()


timed(broker)
timed(names_that_are_no_tools)
timed(kept_by_the_session)


# %% The model and an agent, asked from a cell: what they say, and a search in the agent's kernel
def delegation():
    search.attempt("llm", llm, "Which keys do you know?")  # noqa: F821 - the session's
    report = json.loads(delegate("Search for keys."))  # noqa: F821 - likewise
    search.hits += report["hits"]
    search.incomplete += report["incomplete"]
    search.bytes["delegation"] += sum(report["bytes"].values())


timed(delegation)

# %% And once more all memory, after all that was answered; then the report
if TOLD["memory"]:
    timed(own_memory)
final_answer(  # noqa: F821 - the session's
    json.dumps(
        {
            "hits": search.hits,
            "bytes": search.bytes,
            "refused": search.refused.most_common(40),
            "incomplete": search.incomplete,
            "seconds": search.seconds,
        }
    )
)
