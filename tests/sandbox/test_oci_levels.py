"""Levels ``container`` (podman) and ``gvisor`` (runsc): what they promise, with real kernels.

A level that does not work on this machine is skipped with the reason of its probe, unless
``KERNEL_AGENT_REQUIRE_LEVELS`` (names with commas between them) says that it must work here.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from support.levels import need
from support.results import text_of
from support.waiting import DEADLINE_S, begin

from kernel_agent.errors import SandboxError
from kernel_agent.kernel import Access, KernelSession
from kernel_agent.sandbox import chooser, programs

ROOT = Path(__file__).parents[2]
LIMITS = {"memory_mb": 3000, "processes": 100, "file_mb": 20, "disk_mb": 100}

HOST = """
import asyncio, sys
from pathlib import Path
from kernel_agent.kernel.process import KernelSession

async def main():
    async with KernelSession(cwd=Path(sys.argv[2]), sandbox=sys.argv[1]) as kernel:
        await kernel.execute("import subprocess; subprocess.Popen(['sleep', '1000'])")
        print(kernel._directory, flush=True)
        await asyncio.sleep(1000)

asyncio.run(main())
"""


def processes_naming(text: str) -> list[str]:
    """Return the command lines of living processes in which a text occurs."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if text in line:
                found.append(line)
    return found


def control_groups(directory: str) -> list[Path]:
    """Return the control groups of a kernel, as its record of what is to be undone names them."""
    record = json.loads((Path(directory) / "undo.json").read_text())
    return [Path(path) for action, path, *_ in record["undo"] if action == "empty"]


def records_in_run() -> set[Path]:
    """Return what runtimes keep of root's containers where all programs see it."""
    return {path for name in ("runc", "crun") for path in Path("/run", name).glob("*")}


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module", params=["container", "gvisor"])
def level(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def folder(level: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("work")
    (folder / "in.csv").write_text("a\n1\n")
    (folder / "trace.jsonl").write_text("the record")
    return folder


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def kernel(level: str, folder: Path) -> AsyncIterator[KernelSession]:
    need(level)
    os.environ["SECRET_OF_THE_HOST"] = "canary-in-the-environment"
    try:
        async with KernelSession(
            cwd=folder,
            sandbox=level,
            access=Access(
                protected=[folder / "in.csv"], hidden=[folder / "trace.jsonl"], limits=LIMITS
            ),
        ) as started:
            yield started
    finally:
        del os.environ["SECRET_OF_THE_HOST"]


async def test_every_claim_of_the_level_was_measured_inside(
    level: str, kernel: KernelSession
) -> None:
    claims = chooser.mechanism(level).LEVEL.claims
    holds = kernel.sandbox_report["holds"]
    assert claims
    assert all(holds[claim] for claim in claims)


async def test_the_kernel_of_root_is_not_root(level: str, kernel: KernelSession) -> None:
    if os.geteuid() != 0:
        pytest.skip("this user is not root")
    result = await kernel.execute("import os; print(os.getuid(), os.geteuid())")
    uid, effective = text_of(result).split()
    assert int(uid) > 1000
    assert effective == uid


async def test_a_home_below_the_temporary_files_is_no_place_of_the_host(
    level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written at its path inside lies in memory of the kernel's own."""
    need(level)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "work").mkdir()
    async with KernelSession(cwd=tmp_path / "work", sandbox=level) as kernel:
        assert (await kernel.execute("1")).ok


async def test_pandas_and_matplotlib_work(level: str, kernel: KernelSession) -> None:
    result = await kernel.execute(
        "import pandas as pd, matplotlib.pyplot as plt\n"
        "table = pd.read_csv('in.csv'); table.plot(); plt.show(); int(table['a'].sum())"
    )
    assert result.status == "ok", text_of(result)
    assert any("image/png" in o.get("data", {}) for o in result.outputs)
    assert text_of(result).endswith("1")
    assert "not writable" not in text_of(result)


async def test_programs_can_be_run(level: str, kernel: KernelSession) -> None:
    result = await kernel.execute(
        "import subprocess; print(subprocess.check_output('echo $((6*7))', shell=True, text=True))"
    )
    assert text_of(result).strip() == "42"


async def test_threads_and_process_pools_work(level: str, kernel: KernelSession) -> None:
    result = await kernel.execute(
        "import math, multiprocessing\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor(4) as threads: print(list(threads.map(math.sqrt, [1, 4])))\n"
        "with multiprocessing.Pool(2) as pool: print(pool.map(math.sqrt, [9, 16]))"
    )
    assert text_of(result) == "[1.0, 2.0]\n[3.0, 4.0]\n"


async def test_an_input_can_be_read_but_not_changed(
    level: str, kernel: KernelSession, folder: Path
) -> None:
    for attack in (
        "open('in.csv', 'w')",
        "os.remove('in.csv')",
        "os.rename('in.csv', 'b')",
        "os.link('in.csv', 'c'); open('c', 'a').write('x')",
        "os.chmod('in.csv', 0o777)",
    ):
        result = await kernel.execute(f"import os; {attack}")
        assert result.status == "error", attack
        assert result.error is not None
        assert result.error.ename in {"OSError", "PermissionError"}, attack
    assert (folder / "in.csv").read_text() == "a\n1\n"


async def test_what_is_hidden_cannot_be_read_or_changed(
    level: str, kernel: KernelSession, folder: Path
) -> None:
    for attack in (
        "print(open('trace.jsonl').read())",
        "open('trace.jsonl', 'w')",
        "os.remove('trace.jsonl')",
        "os.link('trace.jsonl', 'd'); print(open('d').read())",
    ):
        result = await kernel.execute(f"import os; {attack}")
        assert "the record" not in text_of(result)
    assert (folder / "trace.jsonl").read_text() == "the record"


async def test_files_and_variables_of_the_host_are_not_there(
    level: str, kernel: KernelSession, tmp_path: Path
) -> None:
    canary = tmp_path / "canary"
    canary.write_text("canary-in-a-file")
    canary.chmod(0o644)
    result = await kernel.execute(
        "import os, glob\n"
        f"for path in [{str(canary)!r}, '/etc/shadow', '/etc/hostname', '/proc/1/root{canary}']:\n"
        "    try: print(open(path).read())\n"
        "    except OSError: pass\n"
        "print(dict(os.environ))\n"
        "for path in glob.glob('/proc/*/environ'):\n"
        "    try: print(open(path).read())\n"
        "    except OSError: pass\n"
        "print(os.listdir(os.path.expanduser('~')), os.listdir('/'))"
    )
    assert result.status == "ok"
    assert "canary" not in text_of(result).replace(str(canary), "")
    assert "root:" not in text_of(result)


async def test_a_file_cannot_grow_beyond_its_limit(level: str, kernel: KernelSession) -> None:
    result = await kernel.execute(
        "with open('/tmp/big', 'wb') as file:\n    for _ in range(40): file.write(bytes(1 << 20))"
    )
    assert result.error is not None
    assert result.error.ename == "OSError"
    assert "too large" in result.error.evalue


async def test_temporary_files_cannot_fill_the_machine(level: str, kernel: KernelSession) -> None:
    result = await kernel.execute(
        "import os\n"
        "written = 0\n"
        "try:\n"
        "    for number in range(30):\n"
        "        with open(f'/tmp/part{number}', 'wb') as file:\n"
        "            written += file.write(bytes(10 << 20))\n"
        "except OSError as error: print(error)\n"
        "finally:\n"
        "    for number in range(30):\n"
        "        if os.path.exists(f'/tmp/part{number}'): os.remove(f'/tmp/part{number}')\n"
        "print(written >> 20)"
    )
    said, megabytes = text_of(result).splitlines()
    assert "No space left" in said
    assert int(megabytes) <= LIMITS["disk_mb"]


async def test_an_interrupted_cell_keeps_the_variables(level: str, kernel: KernelSession) -> None:
    await kernel.execute("kept = 42")
    running = await begin(kernel, "while True: pass", timeout_s=60)
    await kernel.interrupt()
    assert (await running).status == "interrupted"
    assert text_of(await kernel.execute("kept")) == "42"


async def test_results_belong_to_whoever_started_it(
    level: str, kernel: KernelSession, folder: Path
) -> None:
    await kernel.execute("open('made.txt', 'w').write('by a cell')")
    await kernel.close()
    made = folder / "made.txt"
    assert made.read_text() == "by a cell"
    assert made.stat().st_uid == os.geteuid()
    assert folder.stat().st_uid == os.geteuid()


async def test_a_loop_that_swallows_interrupts_is_killed_and_leaves_nothing(
    level: str, tmp_path: Path
) -> None:
    need(level)
    kernel = KernelSession(cwd=tmp_path, sandbox=level)
    async with kernel:
        directory = kernel._directory
        # In a cell of its own, however long it takes: ipykernel would set its handler for the next.
        begun = await kernel.execute(
            "import ipykernel.kernelbase, signal, subprocess\n"
            "ipykernel.kernelbase.signal = lambda *arguments: None\n"
            "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
            "_ = subprocess.Popen(['sleep', '1000'], start_new_session=True)"
        )
        assert begun.ok
        result = await kernel.execute("while True: pass", timeout_s=0.5)
        assert result.status == "dead"
        assert not kernel.alive
    assert processes_naming(str(directory)) == []
    assert directory is not None
    assert not directory.exists()


async def test_a_host_that_is_killed_leaves_nothing(level: str, tmp_path: Path) -> None:
    need(level)
    before = records_in_run()
    host = subprocess.Popen(
        [sys.executable, "-c", HOST, level, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert host.stdout is not None
    directory = host.stdout.readline().strip()
    assert directory
    assert processes_naming(directory)
    groups = control_groups(directory)
    host.send_signal(signal.SIGKILL)
    host.wait()
    host.stdout.close()
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline and (processes_naming(directory) or Path(directory).exists()):
        time.sleep(0.05)
    assert processes_naming(directory) == []
    assert not Path(directory).exists()
    assert directory not in Path("/proc/self/mountinfo").read_text()
    assert [group for group in groups if group.exists()] == []
    assert records_in_run() <= before
    assert {path.stat().st_uid for path in (tmp_path, *tmp_path.iterdir())} == {os.geteuid()}


async def test_without_its_program_the_level_says_what_to_do(
    level: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(programs, "SYSTEM", ())  # where it lies on this machine
    tried = chooser.mechanism(level).probe()
    assert not tried.works
    assert "not installed" in tried.reason
    assert "Install" in tried.advice


async def test_hosts_cannot_be_opened_and_that_is_an_error(level: str, tmp_path: Path) -> None:
    need(level)
    grant = _grant(tmp_path)
    with pytest.raises(SandboxError, match="opens no hosts"):
        chooser.mechanism(level).prepare(grant, ["true"], {})


async def test_it_all_holds_for_an_ordinary_user(
    level: str, request: pytest.FixtureRequest
) -> None:
    python, account = (os.environ.get(f"KERNEL_AGENT_USER{name}", "") for name in ("_PYTHON", ""))
    if os.geteuid() != 0:
        pytest.skip("this is an ordinary user")
    if not (python and account and shutil.which("setpriv")):
        pytest.skip("KERNEL_AGENT_USER and KERNEL_AGENT_USER_PYTHON name no ordinary user")
    user = pwd.getpwnam(account)
    passed_on = ("KERNEL_AGENT_REQUIRE_LEVELS",)
    environment: dict[str, Any] = {
        "HOME": user.pw_dir,
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "PYTHONPATH": f"{ROOT}:{ROOT / 'extension'}",
        "PYTHONDONTWRITEBYTECODE": "1",
        **{name: os.environ[name] for name in passed_on if name in os.environ},
    }
    done = subprocess.run(
        [
            *("setpriv", "--reuid", str(user.pw_uid), "--regid", str(user.pw_gid)),
            *("--clear-groups", python, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *("-k", level, str(request.path)),
        ],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]


def _grant(folder: Path) -> Any:
    from kernel_agent.sandbox.levels import Grant

    for name in ("work", "io", "tmp"):
        (folder / name).mkdir()
    return Grant(
        python=Path(sys.executable),
        code=folder / "work",
        workspace=folder / "work",
        sockets=folder / "io",
        scratch=folder / "tmp",
        proxy=folder / "proxy",
    )


async def test_programs_that_try_gvisor_at_once_do_not_disturb_each_other() -> None:
    """Each names its trial as nobody else does."""
    need("gvisor")
    ask = "from kernel_agent.sandbox import gvisor; print(gvisor.probe().works)"
    programs = [
        subprocess.Popen([sys.executable, "-c", ask], stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    assert [program.communicate(timeout=120)[0] for program in programs] == ["True\n"] * 4
