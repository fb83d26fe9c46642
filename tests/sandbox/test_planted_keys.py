"""Keys are planted all over a host; an exhaustive search in the kernel finds none of them.

The host is the command itself, ``kernel-agent run``, with keys in its environment, its command
line, its configuration, its tools' memory, an open file, the user's home and working folder, and
with a daemon beside it that hands keys out. Its model is a server on loopback that quotes the key,
then sends the cells of ``key_search.py``. All keys are random, made for one run, with a mark at
each end: the search looks for both marks, so half a key is found, too, and each in eleven forms
(``forms``). It reads whatever can be read and changed since the keys were made. What is searched on
the host afterwards: trace, notebook, all else in the folder, both outputs of the command, of
``show`` and ``export``, the spans that a collector got, and what the model was sent.

The control is level ``none``, where the same search must find the keys.
"""

from __future__ import annotations

import base64
import contextlib
import fnmatch
import json
import os
import random
import secrets
import shutil
import string
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from servers.collector import Collector
from servers.openai_server import Behaviour, OpenAIServer, error, text
from support.examples import examples, is_quick
from support.levels import need

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SERVER = HERE.parent / "servers" / "mcp_over_pipes.py"  # its tool shows its environment
LEVELS = ("microvm", "gvisor", "container", "bubblewrap", "namespaces", "landlock")  # slowest first
TOOLS = ("price", "stock", "shop_page", "sold", "refused", "settings", "env")
TASK = "What do apples cost?"

ENVIRONMENT = {
    "OPENAI_API_KEY": "env-openai",
    "SHOP_API_KEY": "env-shop",
    "DATABASE_PASSWORD": "env-database",
    "AWS_SECRET_ACCESS_KEY": "env-aws",
    "MAIL_ACCESS": "env-mail",
    "INNOCENT_NOTE": "env-innocent",
    "LS_COLORS": "env-colours",
    "OTEL_EXPORTER_OTLP_HEADERS": "env-collector",
}
HOME_FILES = {
    ".netrc": "file-netrc",
    ".aws/credentials": "file-aws",
    ".config/shop/token.json": "file-config",
    ".local/share/keyrings/login.keyring": "file-keyring",
    ".git-credentials": "file-git",
    ".cache/shop/session": "file-cache",
}
FOLDER_FILES = {".env": "file-dotenv", "kernel-agent.toml": "file-settings"}
OTHERS = (
    "argument", "descriptor", "temporary-file", "shared-memory", "segment", "daemon-memory",
    "daemon-socket", "daemon-abstract", "metadata",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _cache_of_its_own() -> None:
    """Leave the user's cache folder where it is: the machine's image lies in it."""


CACHE = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())


def forms(mark: str) -> dict[str, bytes]:
    """Return a mark as it may be written down; what is cut off depends on what stands around it."""
    plain = mark.encode()
    found = {
        "plain": plain,
        "reversed": plain[::-1],
        "hex": plain.hex().encode(),
        "HEX": plain.hex().upper().encode(),
        "escaped": b"".join(b"\\x%02x" % byte for byte in plain),
        "URL-quoted": b"".join(b"%%%02X" % byte for byte in plain),
        "UTF-16": mark.encode("utf-16-le")[:-1],  # of either byte order
        "UTF-32": mark.encode("utf-32-le")[:-3],
    }
    for shift in range(3):
        written = base64.b64encode(b"\0" * shift + plain)
        found[f"base64+{shift}"] = written[-(-shift * 4 // 3) : len(plain) * 4 // 3 - 2]
    return found


@dataclass
class Keys:
    """The keys of one run, and where on the host they were put."""

    marks: tuple[str, str]
    by_name: dict[str, str] = field(default_factory=dict)

    @classmethod
    def new(cls) -> Keys:
        letters = random.SystemRandom()
        first, last = ("".join(letters.choices(string.ascii_letters, k=16)) for _ in range(2))
        keys = cls((first, last))
        for name in (*ENVIRONMENT.values(), *HOME_FILES.values(), *FOLDER_FILES.values(), *OTHERS):
            keys.by_name[name] = f"{first}.{name}.{secrets.token_hex(12)}{last}"
        return keys

    def __getitem__(self, name: str) -> str:
        return self.by_name[name]

    @property
    def needles(self) -> dict[str, bytes]:
        return {
            f"{end} {form}": needle
            for end, mark in zip(("begin", "end"), self.marks, strict=True)
            for form, needle in forms(mark).items()
        }

    def within(self, data: bytes) -> set[str]:
        """Return the names of the keys in what lies on the host; the form, when it has no name."""
        found = {form for form, needle in self.needles.items() if needle in data}
        named = {name for name, key in self.by_name.items() if key.encode() in data}
        return named or found


@dataclass
class Host:
    """One command that was run on a host full of keys, with what came of it."""

    keys: Keys
    root: Path
    planted: dict[str, Any]
    pid: int = 0
    finished: subprocess.CompletedProcess[bytes] | None = None
    shown: dict[str, bytes] = field(default_factory=dict)
    sent: bytes = b""
    spans: bytes = b""

    @property
    def out(self) -> Path:
        return self.root / "work" / "run"

    @property
    def answer(self) -> Any:
        assert self.finished is not None
        told = json.loads(self.finished.stdout)
        answer = told.get("answer")
        assert answer, (told, self.finished.stderr[-3000:])
        return json.loads(answer) if isinstance(answer, str) else answer

    def found(self) -> dict[str, set[str]]:
        """Return where each key was found, by the key's name."""
        table = bytes.fromhex(self.planted["table"])
        back = bytes(table.index(byte) for byte in range(256))
        found: dict[str, set[str]] = {}
        for place, where, form, around in self.answer["hits"]:
            data = bytes.fromhex(around).translate(back)
            names = {name for name in self.keys.by_name if f".{name}.".encode() in data} or {form}
            for name in names:
                found.setdefault(name, set()).add(f"{place}: {where}")
        return found

    def on_the_host(self) -> dict[str, set[str]]:
        """Return the keys in whatever the command left, printed or sent."""
        assert self.finished is not None
        texts = {
            "stdout": self.finished.stdout,
            "stderr": self.finished.stderr,
            "to the model": self.sent,
            "spans": self.spans,
            **self.shown,
        }
        work = self.out.parent
        for path in work.rglob("*"):
            name = str(path.relative_to(work))
            if path.is_file() and not path.is_symlink() and name not in FOLDER_FILES:
                texts[name] = path.read_bytes()
        return {where: found for where, data in texts.items() if (found := self.keys.within(data))}


def plant(root: Path, keys: Keys, secret_env: tuple[str, ...]) -> dict[str, Any]:
    """Put keys into files of a home and of a working folder; return where."""
    home, work = root / "home", root / "work"
    for folder, planted in ((home, HOME_FILES), (work, FOLDER_FILES)):
        for name, key in planted.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f'{{"password": "{keys[key]}"}}\n')
    (work / ".env").write_text(f"SHOP_TOKEN='{keys['file-dotenv']}'\n")
    (work / "kernel-agent.toml").write_text(
        f'headers = {{ X-Gateway = "{keys["file-settings"]}" }}\n'
        f"secret_env = {json.dumps(secret_env)}\n"
        "[mcp.mail]\n"
        f'command = "{sys.executable} {SERVER} environment"\n'
        'env = ["MAIL_ACCESS"]\n'
    )
    (work / "prices.csv").write_text("product,price\napples,3\n")
    for path in (root, *root.rglob("*")):  # the sandbox is to keep them, not their modes
        path.chmod(0o755 if path.is_dir() else 0o644)
    files = [str(path) for path in (home, work) for path in path.rglob("*") if path.is_file()]
    return {"files": files, "in_folder": [*FOLDER_FILES, *(f"../{name}" for name in FOLDER_FILES)]}


@contextlib.contextmanager
def keeper(root: Path, keys: Keys) -> Iterator[dict[str, Any]]:
    """Start the daemon that hands out keys."""
    unique = secrets.token_hex(6)
    (root / "runtime").mkdir()
    places = {
        "keys": keys.by_name,
        "socket": str(root / "runtime" / "keyring.sock"),
        "name": f"keyring-{unique}",
        "shared": f"keyring-{unique}",
        "segment": secrets.randbelow(2**30) + 1,
    }
    description = root / "keeper.json"
    description.write_text(json.dumps(places))
    with subprocess.Popen(
        [sys.executable, str(HERE / "key_keeper.py"), str(description)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as daemon:
        assert daemon.stdout is not None
        said = json.loads(daemon.stdout.readline())
        description.unlink()
        yield {
            "pids": [daemon.pid],
            "sockets": [places["socket"], f"@{places['name']}"],
            "ports": [said["port"]],
            "segment": places["segment"],
            "identifier": said["identifier"],  # which nobody need guess
            "shared": f"/dev/shm/{places['shared']}",
        }
        assert daemon.stdin is not None
        daemon.stdin.close()


def beneath_too(level: str) -> bool:
    """Whether a sub-agent's memory is searched; a quick look does so at one level."""
    return level == "landlock" or not is_quick()


def cells(told: dict[str, Any], source: str) -> list[str]:
    """Return the cells of a search, the first of which begins with what the search is told."""
    first, *rest = source.split("\n# %%")[1:]
    return [
        f"import json\nTOLD = json.loads({json.dumps(told)!r})\n#{first}",
        *("#" + r for r in rest),
    ]


def cell_of(code: str) -> Behaviour:
    """Return a reply of the model that is a cell."""
    return text(f"I search.\n\n```python\n{code}\n```")


SHOW = """
import sys
from kernel_agent.__main__ import main

out = sys.argv[1]
for arguments in (["show"], ["show", "--html"], ["export"]):  # the page is in the folder
    sys.argv[1:] = [*arguments, out]
    try:
        main()
    except SystemExit as ended:
        assert not ended.code, arguments
    print("shown:", *arguments)
"""


@contextlib.contextmanager
def a_host_full_of_keys(
    level: str, source: str, *, secret_env: tuple[str, ...] = ("SHOP_API_KEY", "DATABASE_PASSWORD")
) -> Iterator[Host]:
    """Run the command at a level on a host full of keys, with the search as its cells."""
    keys = Keys.new()
    root = Path(tempfile.mkdtemp(prefix="planted-", dir="/var/tmp"))
    temporary = Path(tempfile.mkstemp(prefix="planted-", dir="/tmp")[1])
    table = bytes(random.SystemRandom().sample(range(256), 256))
    try:
        with keeper(root, keys) as daemon, Collector() as collector:
            temporary.write_text(keys["temporary-file"])
            temporary.chmod(0o644)
            planted = plant(root, keys, secret_env)
            told = {
                **planted,
                **{name: daemon[name] for name in ("sockets", "ports", "segment", "identifier")},
                "pids": daemon["pids"],
                "files": [*planted["files"], str(temporary), daemon["shared"]],
                "needles": {f: n.translate(table).hex() for f, n in keys.needles.items()},
                "table": table.hex(),
                "tools": TOOLS,
                "variables": list(ENVIRONMENT),
                "planted_at": time.time(),
                "manners": level == "none",
                "memory": True,
                # They lie in the memory that is searched; a machine's processor is emulated.
                "objects": level != "microvm",
                "package_seconds": examples(5, least=1),
            }
            host = Host(keys, root, told)
            refusal = error(429, f"slow down, {keys['env-openai']}", headers={"Retry-After": "0"})

            def replies() -> Iterator[Behaviour]:
                yield refusal
                told["pids"] = [*told["pids"], host.pid]  # it is known by now
                for cell in cells(told, source):
                    yield cell_of(cell)
                    if "delegate(" in cell:  # which asks the model, and then an agent that searches
                        yield error(401, f"wrong key {keys['env-openai']}")
                        beneath = {**told, "memory": beneath_too(level)}
                        first, second, *_, last = cells(beneath, source)
                        yield from map(cell_of, (first, second, last))

            with OpenAIServer(replies()) as server:
                host.finished = command(host, server.url, collector.url, level)
            said = host.finished
            assert said.returncode == 0, (said.stdout[-3000:], said.stderr[-3000:])
            host.sent = json.dumps([request.body for request in server.requests]).encode()
            host.spans = b"".join(collector.bodies)
            shown = subprocess.run(
                [sys.executable, "-c", SHOW, str(host.out)], capture_output=True, timeout=120,
                check=True, cwd=root, env=environment(host, ""),
            )  # fmt: skip
            assert shown.stdout.count(b"shown:") == 3
            host.shown["show and export"] = shown.stdout + shown.stderr
            yield host
    finally:
        shutil.rmtree(root, ignore_errors=True)
        temporary.unlink()


def environment(host: Host, collector: str) -> dict[str, str]:
    """Return the environment of the command: what a person has, and a key in each odd place."""
    kept = ("PATH", "LANG", "PYTHONDONTWRITEBYTECODE")
    named = {name: host.keys[key] for name, key in ENVIRONMENT.items()}
    if collector:
        named["OTEL_EXPORTER_OTLP_ENDPOINT"] = collector
        named["OTEL_EXPORTER_OTLP_PROTOCOL"] = "http/protobuf"
        named["OTEL_EXPORTER_OTLP_HEADERS"] = f"x-key={host.keys['env-collector']}"
    return {
        **{name: os.environ[name] for name in kept if name in os.environ},
        **named,
        "PYTHONPATH": os.pathsep.join([str(ROOT), *os.environ.get("PYTHONPATH", "").split(":")]),
        "HOME": str(host.root / "home"),
        "KERNEL_AGENT_CONFIG": str(host.root / "work" / "kernel-agent.toml"),
        "XDG_CACHE_HOME": CACHE,  # where the machine's image lies
        "XDG_RUNTIME_DIR": str(host.root / "runtime"),
        "KERNEL_AGENT_FORMAT": "fenced",
        "KERNEL_AGENT_CELL_SECONDS": "400",
        "KERNEL_AGENT_MAX_SECONDS": "900",
    }


def command(
    host: Host, endpoint: str, collector: str, level: str
) -> subprocess.CompletedProcess[bytes]:
    """Run the command with a key among its arguments and one in a file that is open."""
    keys = host.keys
    with tempfile.TemporaryFile() as held:
        held.write(keys["descriptor"].encode())
        held.flush()
        os.set_inheritable(held.fileno(), True)
        address = endpoint.replace("://", f"://analyst:{keys['argument']}@")
        with subprocess.Popen(
            [
                str(Path(sys.executable).with_name("opentelemetry-instrument")),
                sys.executable, "-m", "kernel_agent", "run", TASK,
                "--model", "searcher", "--base-url", address, "--sandbox", level,
                "--data", "prices.csv", "--tools", str(HERE / "planted_tools.py"),
                "--tools", "delegate", "--tools", "llm", "--mcp", "mail", "--approve", "never",
                "--out", str(host.out), "--json",
            ],
            cwd=host.root / "work", env=environment(host, collector), pass_fds=[held.fileno()],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        ) as running:  # fmt: skip
            host.pid = running.pid
            try:
                said = running.communicate(timeout=1000)
            except BaseException:
                running.kill()
                raise
        return subprocess.CompletedProcess(running.args, running.returncode, *said)


SEARCH = (HERE / "key_search.py").read_text()
PURE = (HERE / "key_search_pure.py").read_text()


@pytest.mark.parametrize("level", LEVELS)
def test_a_search_of_everything_in_the_kernel_finds_no_key(level: str) -> None:
    """Not in memory, processes, files, sockets or what the host answers; nor in what is kept."""
    need(level)
    with a_host_full_of_keys(level, SEARCH) as host:
        assert host.found() == {}
        assert host.on_the_host() == {}
        # Where system calls are slow, the time may end among the system's own, read-only packages.
        assert set(host.answer["incomplete"]) <= {"packages"}
        looked = host.answer["bytes"]
        assert looked["own_memory"] > 20_000_000
        assert looked["folders looked at"] > 10
        assert looked["broker"] > 10_000
        assert looked["delegation"] > (20_000_000 if beneath_too(level) else 1_000)


def test_the_interpreter_gives_no_key_either() -> None:
    """Its language has words for the environment, files and tools; none of them leads to a key."""
    need("interpreter")
    with a_host_full_of_keys("interpreter", PURE) as host:
        assert host.found() == {}
        assert host.on_the_host() == {}
        assert host.answer["bytes"].keys() == {"environment", "system", "files", "broker"}


def test_a_secret_that_nobody_named_goes_where_a_tool_sends_it() -> None:
    """What the host cuts is what it was told of; that the search sees what tools say, too."""
    need("interpreter")
    with a_host_full_of_keys("interpreter", PURE, secret_env=()) as host:
        assert host.found().keys() == {"env-shop", "env-database"}
        assert host.on_the_host().keys() >= {"run/trace.jsonl", "run/replay.py"}


PLACES = {
    "processes: /proc/*/environ": tuple(ENVIRONMENT.values()),
    "processes: /proc/*/cmdline": ("argument",),
    "processes: /proc/*/fd/*": ("descriptor",),
    "processes: memory of *": ("daemon-memory", "env-shop", "env-innocent"),
    "machine: segment *": ("segment",),
    "named_files: *": (
        *HOME_FILES.values(),
        *FOLDER_FILES.values(),
        "temporary-file",
        "shared-memory",
    ),
    "files: *": (*HOME_FILES.values(), "file-dotenv", "temporary-file", "shared-memory"),
    "unix_sockets: *": ("daemon-socket", "daemon-abstract"),
    "network: *": ("metadata",),
}
"""Where the control must find which keys; each part of the search shows that it finds."""


@pytest.mark.long
def test_the_same_search_without_a_sandbox_finds_the_keys() -> None:
    """The control: a search that finds nothing here would be no search."""
    with a_host_full_of_keys("none", SEARCH) as host:
        found = host.found()
        missed = {
            (place, key)
            for place, keys in PLACES.items()
            for key in keys
            if not fnmatch.filter(found.get(key, ()), place)
        }
        assert missed == set()
        assert host.on_the_host() == {}
