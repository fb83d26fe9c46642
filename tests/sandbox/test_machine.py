"""Kernels in a machine of their own: what gets in, what gets out, and going on after hibernation.

One machine serves most of these tests. They need the image (``kernel-agent microvm build``), and
are skipped with the probe's reason where the level does not work; unless the environment variable
KERNEL_AGENT_REQUIRE_LEVELS names it.
"""

import asyncio
import os
import platform
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.levels import need
from support.waiting import DEADLINE_S

from kernel_agent.errors import KernelError, SandboxError, UsageError
from kernel_agent.kernel import Access, KernelSession
from kernel_agent.models.scripted import ScriptedModel
from kernel_agent.records.cell import CellResult
from kernel_agent.sandbox import microvm
from kernel_agent.session.loop_thread import LoopThread
from kernel_agent.session.session import Session


@pytest.fixture(autouse=True)
def _cache_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the user's cache folder where it is: the machine image lies in it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "own" / "state"))


@pytest.fixture(scope="module", autouse=True)
def works() -> None:
    """Skip, or fail where the level is required."""
    need("microvm")


class Driver:
    """A kernel session on an event loop of its own, so that several tests can use it."""

    def __init__(self, folder: Path, *, resume: Path | None = None, limits=None) -> None:
        self.folder = folder
        self.closed = False
        self.thread = LoopThread()
        self.session = KernelSession(
            cwd=folder, sandbox="microvm", resume=resume, access=Access(
                protected=[folder / "data"], hidden=[folder / "trace.jsonl"],
                readable=[folder.parent / "large.csv"], limits=limits or {},
            ),
        )  # fmt: skip
        try:
            self.thread.result(self.session.start(timeout_s=200))
        except BaseException:
            self.thread.end()
            raise

    def run(self, code: str, timeout_s: float = 120) -> CellResult:
        return self.thread.result(self.session.execute(textwrap.dedent(code), timeout_s=timeout_s))

    def value(self, code: str) -> str:
        result = self.run(code)
        assert result.status == "ok", result.error
        return result.outputs[-1]["data"]["text/plain"]

    def hibernate(self, folder: Path) -> None:
        self.thread.result(self.session.hibernate(folder))

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.thread.result(self.session.close())
            self.thread.end()


def make_folder(folder: Path) -> Path:
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "sales.csv").write_text("region,amount\nnorth,3\nsouth,4\n")
    (folder.parent / "large.csv").write_text("a large table, linked")
    (folder / "data" / "large.csv").symlink_to(folder.parent / "large.csv")
    (folder / "trace.jsonl").write_text("the host's own")
    (folder / "notes.txt").write_text("from the host")
    return folder.resolve()


@pytest.fixture(scope="module")
def kernel(tmp_path_factory) -> Iterator[Driver]:
    """The machine that most tests share."""
    folder = make_folder(tmp_path_factory.mktemp("machine") / "workspace")
    driver = Driver(folder, limits={"processes": 64})
    yield driver
    driver.close()


def processes(pid: int) -> list[int]:
    """Return a process and all below it."""
    found, waiting = [], [pid]
    while waiting:
        found.append(waiting.pop())
        for child in Path(f"/proc/{found[-1]}/task").glob("*/children"):
            waiting += map(int, child.read_text().split())
    return found


def alive(pids: list[int]) -> list[int]:
    """Return those that run."""
    running = []
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state not in "ZX":
            running.append(pid)
    return running


def until_gone(pids: list[int], seconds: float = DEADLINE_S) -> list[int]:
    deadline = time.monotonic() + seconds
    while alive(pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    return alive(pids)


# --- another computer ----------------------------------------------------------------------------


def test_cells_run_on_a_linux_of_their_own(kernel):
    assert kernel.value("import platform; platform.release()") != repr(platform.release())
    assert kernel.value("import os; os.getuid()") == "1000"
    assert kernel.value("import sys; 'matplotlib.pyplot' in sys.modules") == "True"


def test_what_the_level_claims_was_measured_inside(kernel):
    report = kernel.session.sandbox_report
    assert report["level"] == "microvm"
    assert all(report["holds"][claim] for claim in microvm.LEVEL.claims)
    assert report["machine"]["processor"].startswith(("hardware", "emulated in software (TCG)"))


def test_no_network_leads_out(kernel):
    assert kernel.value("import os; os.listdir('/sys/class/net')") == "['lo']"
    result = kernel.run("import socket; socket.create_connection(('192.0.2.1', 53), timeout=5)")
    assert result.error.ename == "OSError"
    assert "unreachable" in result.error.evalue


def test_a_kernel_cannot_speak_to_the_host_over_the_wire(kernel):
    result = kernel.run("""
        import glob
        for path in glob.glob("/dev/vport*") + ["/dev/vda", "/dev/vdb", "/dev/mem"]:
            try:
                open(path, "r+b")
                print("opened", path)
            except OSError:
                pass
    """)
    assert result.outputs == ()


def test_qemu_has_no_rights_of_its_own(kernel):
    pids = processes(kernel.session.pid)
    qemu = [
        pid for pid in pids
        if Path(f"/proc/{pid}/comm").read_text().startswith("qemu")
    ]  # fmt: skip
    assert len(qemu) == 1
    status = Path(f"/proc/{qemu[0]}/status").read_text()
    assert "CapEff:\t0000000000000000" in status
    assert "NoNewPrivs:\t1" in status
    assert "Seccomp:\t2" in status
    if os.geteuid() == 0:
        assert "Uid:\t65534" in status


def test_what_analysts_use_works(kernel):
    result = kernel.run("""
        import subprocess, threading
        import pandas as pd
        import matplotlib.pyplot as plt
        from multiprocessing import Pool

        def square(number):
            return number * number

        with Pool(2) as pool:
            squares = pool.map(square, range(4))
        said = subprocess.run("echo hello", shell=True, capture_output=True, text=True).stdout
        table = pd.read_csv("data/sales.csv")
        seen = []
        thread = threading.Thread(target=lambda: seen.append(table.amount.sum()))
        thread.start(); thread.join()
        plt.plot(table.amount); plt.savefig("chart.png"); plt.show()
        print(squares, said, seen)
    """)
    assert result.status == "ok", result.error
    assert any("image/png" in output.get("data", {}) for output in result.outputs)
    text = "".join(output.get("text", "") for output in result.outputs)
    assert "[0, 1, 4, 9] hello" in text
    assert "7" in text
    assert (kernel.folder / "chart.png").read_bytes().startswith(b"\x89PNG")


# --- files ---------------------------------------------------------------------------------------


def test_files_come_out_as_soon_as_their_cell_has_ended(kernel):
    kernel.run("""
        import os
        os.makedirs("out/deep", exist_ok=True)
        open("out/deep/answer.txt", "w").write("42")
        open("out/large.bin", "wb").write(b"x" * 3_000_000)
    """)
    assert (kernel.folder / "out/deep/answer.txt").read_text() == "42"
    assert (kernel.folder / "out/large.bin").stat().st_size == 3_000_000
    kernel.run("os.remove('out/large.bin'); open('notes.txt', 'a').write(', changed')")
    assert not (kernel.folder / "out/large.bin").exists()
    assert (kernel.folder / "notes.txt").read_text() == "from the host, changed"


def test_a_file_in_the_place_of_a_directory_comes_out_and_the_reverse(kernel):
    kernel.run(
        "import os; open('one', 'w').write('1')\nos.mkdir('two'); open('two/in', 'w').write('2')"
    )
    kernel.run(
        "os.remove('one'); os.mkdir('one'); open('one/in', 'w').write('3')\n"
        "os.remove('two/in'); os.rmdir('two'); open('two', 'w').write('4')"
    )
    assert (kernel.folder / "one" / "in").read_text() == "3"
    assert (kernel.folder / "two").read_text() == "4"


def test_inputs_can_be_read_and_not_changed(kernel):
    assert kernel.value("open('data/sales.csv').read()[:6]") == "'region'"
    changed = (kernel.folder / "data/sales.csv").stat().st_mtime_ns
    assert kernel.value("import os; os.stat('data/sales.csv').st_mtime_ns") == str(changed)
    for attempt in ("open('data/sales.csv', 'a')", "open('data/new', 'w')", "os.remove('data')"):
        assert kernel.run(f"import os; {attempt}").status == "error"
    assert (kernel.folder / "data/sales.csv").read_text().startswith("region,amount\nnorth")


def test_a_linked_input_is_there_and_cannot_be_changed(kernel):
    assert kernel.value("open('data/large.csv').read()") == "'a large table, linked'"
    assert kernel.run("open('data/large.csv', 'a')").status == "error"


def test_what_is_hidden_is_not_there_and_cannot_be_replaced(kernel):
    assert kernel.value("import os; os.path.exists('trace.jsonl')") == "False"
    kernel.run("open('trace.jsonl', 'w').write('forged')")
    assert (kernel.folder / "trace.jsonl").read_text() == "the host's own"
    kernel.run("os.remove('trace.jsonl')")


def test_links_pipes_and_sockets_stay_in_the_machine(kernel):
    result = kernel.run("""
        import os
        os.symlink("/etc/passwd", "link")
        os.symlink("/", "folder")
        os.mkfifo("pipe")
    """)
    assert result.status == "ok"
    assert not {"link", "folder", "pipe"} & {path.name for path in kernel.folder.iterdir()}


# --- limits --------------------------------------------------------------------------------------


def test_a_cell_that_takes_too_long_is_interrupted_and_the_variables_stay(kernel):
    kernel.run("kept = 5")
    assert kernel.run("while True: pass", timeout_s=1).status == "timeout"
    assert kernel.value("kept") == "5"


def test_processes_are_limited(kernel):
    result = kernel.run("""
        import os, time
        made = []
        try:
            for _ in range(200):
                child = os.fork()
                if child == 0:
                    time.sleep(60)
                    os._exit(0)
                made.append(child)
        except OSError as error:
            print(type(error).__name__)
        for child in made:
            os.kill(child, 9)
        print(len(made) < 64)
    """)
    text = "".join(output.get("text", "") for output in result.outputs)
    assert text.split() == ["BlockingIOError", "True"]


FILL = """
import numpy as np
for block in [np.zeros(100_000_000, np.uint8) for _ in range(100)]:
    block[::4096] = 1  # a byte of each page: enough to have it
"""


@pytest.mark.long
def test_a_kernel_has_the_memory_of_its_machine(tmp_path):
    """QEMU has no more to give."""
    driver = Driver(make_folder(tmp_path / "workspace"))
    full = driver.run(FILL)
    driver.close()
    assert full.status in ("dead", "error")
    assert "Memory" in full.error.ename or "SIGKILL" in full.error.evalue


# --- hibernation ---------------------------------------------------------------------------------


@pytest.mark.long
def test_a_hibernated_kernel_goes_on_with_its_variables(kernel, tmp_path):
    """Twice; each of them ends in a way of its own (see below)."""
    folder = make_folder(tmp_path / "first")
    driver = Driver(folder)
    driver.run("import pandas as pd; table = pd.read_csv('data/sales.csv'); x = 41")
    driver.run("open('kept.txt', 'w').write('on the disk'); import os, time")
    seed = "int(__import__('numpy').random.get_state()[1][1])"
    assert driver.value(seed) != kernel.value(seed)  # both begin with the image's saved state
    pids = processes(driver.session.pid)
    with pytest.raises(SandboxError, match="cannot hibernate to"):
        driver.hibernate(folder)
    driver.hibernate(tmp_path / "asleep")
    driver.close()
    assert until_gone(pids) == []
    assert (tmp_path / "asleep").stat().st_mode & 0o077 == 0
    assert all(f.stat().st_mode & 0o077 == 0 for f in (tmp_path / "asleep").iterdir())

    random = []
    for number, end in enumerate((ends_with_the_process_beside_it, says_how_it_ended)):
        again = Driver(make_folder(tmp_path / f"again{number}"), resume=tmp_path / "asleep")
        assert again.session.steps == 3
        assert again.session.sandbox_report["resumed"] is True
        assert again.value("x + 1") == "42"
        assert again.value("int(table.amount.sum())") == "7"
        assert again.value("open('kept.txt').read()") == "'on the disk'"
        assert abs(float(again.value("time.time()")) - time.time()) < 60
        random.append(again.value("os.urandom(16).hex()"))
        again.run("open('later.txt', 'w').write('new')")
        assert (again.folder / "kept.txt").read_text() == "on the disk"
        assert (again.folder / "later.txt").read_text() == "new"
        end(again)
        again.close()
    assert random[0] != random[1]
    assert not (folder / "later.txt").exists()

    with (tmp_path / "asleep" / "state").open("r+b") as state:
        state.seek(1 << 20)
        state.write(b"forged")
    with pytest.raises(SandboxError, match="has been changed since"):
        Driver(make_folder(tmp_path / "never"), resume=tmp_path / "asleep")


def test_a_machine_that_could_not_be_saved_goes_on(kernel, tmp_path):
    kernel.run("kept = 6")
    control = kernel.session._directory / "io" / "vm"
    with pytest.raises(SandboxError, match="could not be hibernated"):
        kernel.thread.result(microvm._ask(control, {"hibernate": str(tmp_path / "missing")}))
    with pytest.raises(SandboxError, match="cannot hibernate to"):
        kernel.hibernate(tmp_path)  # which connects again
    assert kernel.value("kept") == "6"


def test_a_kernel_is_not_hibernated_in_the_middle_of_a_cell(kernel, tmp_path):
    begun = threading.Event()
    running = kernel.thread._loop  # the loop on which the session runs
    cell = asyncio.run_coroutine_threadsafe(
        kernel.session.execute(
            "import time; print('on it', flush=True); time.sleep(2)",
            on_output=lambda _: begun.set(),
        ),
        running,
    )
    assert begun.wait(60)
    with pytest.raises(KernelError, match="a cell is running"):
        kernel.hibernate(tmp_path / "asleep")
    assert cell.result(30).status == "ok"
    assert not (tmp_path / "asleep").exists()


def test_a_session_hibernates_and_resumes(tmp_path):
    model = ScriptedModel([])
    with Session(model=model, sandbox="microvm", out=tmp_path / "a") as session:
        session.execute_sync("x = 41")
        session.hibernate_sync(tmp_path / "asleep")
    with Session(model=model, resume=tmp_path / "asleep", out=tmp_path / "b") as again:
        assert again.sandbox == "microvm"
        result = again.execute_sync("x + 1")
    assert result.outputs[0]["data"]["text/plain"] == "42"
    with pytest.raises(UsageError, match="leave data out"):
        Session(model=model, resume=tmp_path / "asleep", data=["sales.csv"])
    with pytest.raises(SandboxError, match="not a hibernated session"):
        Session(model=model, resume=tmp_path / "a", out=tmp_path / "c").execute_sync("1")


def test_only_a_machine_can_be_hibernated(tmp_path):
    from kernel_agent.sandbox.chooser import hibernating

    with pytest.raises(SandboxError, match="cannot be hibernated"):
        hibernating("none")


# --- the end -------------------------------------------------------------------------------------


def test_closing_leaves_nothing(kernel):
    """The last of those that share the machine."""
    pids = processes(kernel.session.pid)
    directory = kernel.session._directory
    assert len(pids) > 1
    kernel.close()
    assert until_gone(pids) == []
    assert not directory.exists()


def ends_with_the_process_beside_it(driver: Driver) -> None:
    pids = processes(driver.session.pid)
    os.kill(driver.session.pid, signal.SIGKILL)
    assert until_gone(pids) == []
    assert driver.thread.result(_noticed(driver.session)) == "gone"


def says_how_it_ended(driver: Driver) -> None:
    result = driver.run("import os; os._exit(3)")
    assert result.status == "dead"
    assert "exit code 3" in result.error.evalue


async def _noticed(session: KernelSession) -> str:
    deadline = time.monotonic() + DEADLINE_S
    while session.alive and time.monotonic() < deadline:
        await asyncio.sleep(0.02)
    return "alive" if session.alive else "gone"


HOST = """
import asyncio, sys, time
from pathlib import Path
from kernel_agent.kernel.process import KernelSession

async def main():
    session = KernelSession(cwd=Path(sys.argv[1]), sandbox="microvm")
    await session.start()
    print(session.pid, session._directory, flush=True)
    await asyncio.sleep(100)

asyncio.run(main())
"""


def test_a_machine_ends_with_a_host_that_is_killed(tmp_path):
    folder = make_folder(tmp_path / "w")
    host = subprocess.Popen(
        [sys.executable, "-c", HOST, str(folder)], stdout=subprocess.PIPE, text=True
    )
    pid, directory = host.stdout.readline().split()
    pids = processes(int(pid))
    host.kill()
    host.wait()
    host.stdout.close()
    assert len(pids) > 1
    assert until_gone(pids) == []
    deadline = time.monotonic() + DEADLINE_S
    while Path(directory).exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(directory).exists()
