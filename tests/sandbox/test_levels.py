"""Every level that works here: what cells need works, what they must not have is not there."""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
from pathlib import Path

import nbformat
import psutil
import pytest
from nbclient import NotebookClient
from support.levels import need
from support.waiting import DEADLINE_S

from kernel_agent.errors import KernelStartError, SandboxError
from kernel_agent.kernel import Access, KernelSession
from kernel_agent.records.cell import CellResult
from kernel_agent.sandbox import chooser, steps

LEVELS = ("bubblewrap", "namespaces", "landlock")


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    need(name)
    return name


def said(result: CellResult) -> str:
    parts = [o.get("text") or o.get("data", {}).get("text/plain", "") for o in result.outputs]
    return "".join(parts) if result.error is None else result.error.ename


async def test_the_tools_of_an_analyst_work(tmp_path: Path, level: str) -> None:
    cells = {
        "import threading as t; n = t.Thread(target=print, args='x'); n.start(); n.join()": "x\n",
        "import subprocess; subprocess.check_output('echo y', shell=True)": "b'y\\n'",
        "!echo z": "z\n",
        "import pandas, matplotlib.pyplot as p; p.plot([1]); p.savefig('p.png'); p.close(); 1": "1",
        "import asyncio; await asyncio.sleep(0, 'a')": "'a'",
        "import tempfile; tempfile.NamedTemporaryFile().close(); 2": "2",
        "import os, pathlib; pathlib.Path('out').mkdir(); os.listdir('out')": "[]",
    }
    if level != "landlock":  # it has no shared memory of its own, which locks need
        cells["import multiprocessing as m; m.Pool(2).map(abs, [-1, 2])"] = "[1, 2]"
    async with KernelSession(cwd=tmp_path, sandbox=level) as kernel:
        for code, shown in cells.items():
            assert said(await kernel.execute(code)).replace("\r", "").endswith(shown), code
    assert (tmp_path / "p.png").stat().st_uid == os.geteuid()


async def test_where_landlock_knows_no_emptying_a_file_is_emptied_by_who_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As before Linux 6.2: otherwise each of a user's files could be emptied by its path."""
    need("landlock")
    monkeypatch.setattr(steps, "landlock_version", lambda: 2)
    (tmp_path / "own.txt").write_text("content")
    async with KernelSession(cwd=tmp_path, sandbox="landlock") as kernel:
        for code in ("os.truncate('own.txt', 0)", "os.open('own.txt', os.O_RDONLY | os.O_TRUNC)"):
            assert said(await kernel.execute(f"import os; {code}")) == "PermissionError", code
        assert (tmp_path / "own.txt").read_text() == "content"
        assert said(await kernel.execute("open('own.txt', 'w').close(); 1")) == "1"
    assert (tmp_path / "own.txt").read_text() == ""


async def test_inputs_are_read_only_and_records_hidden(tmp_path: Path, level: str) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.csv").write_text("a\n1\n")
    (tmp_path / "trace.jsonl").write_text("secret")
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.write_text("linked")
    hidden = [tmp_path / "trace.jsonl", tmp_path / "run.ipynb"]
    access = Access(protected=[tmp_path / "data"], hidden=hidden, readable=[outside])
    async with KernelSession(cwd=tmp_path, sandbox=level, access=access) as kernel:
        assert said(await kernel.execute("open('data/a.csv').read()")) == r"'a\n1\n'"
        assert said(await kernel.execute(f"open({str(outside)!r}).read()")) == "'linked'"
        refused = [
            await kernel.execute("open('data/a.csv', 'w')"),
            await kernel.execute("open('data/new', 'w')"),
            await kernel.execute("open('trace.jsonl', 'a')"),
        ]
        assert (await kernel.execute(f"open({str(outside)!r}, 'w')")).status == "error"
    if "inputs" in chooser.mechanism(level).LEVEL.claims:
        assert [r.status for r in refused] == ["error"] * 3
        assert (tmp_path / "trace.jsonl").read_text() == "secret"
    assert {p.stat().st_uid for p in tmp_path.rglob("*")} == {os.geteuid()}


async def test_the_self_test_is_reported(tmp_path: Path, level: str) -> None:
    async with KernelSession(cwd=tmp_path, sandbox=level) as kernel:
        report = kernel.sandbox_report
    assert report["level"] == level
    assert all(report["holds"][claim] for claim in chooser.mechanism(level).LEVEL.claims)
    assert report["facts"]["uid"] != 0


async def test_what_is_inside_ends_with_its_outermost_process(tmp_path: Path, level: str) -> None:
    """Not only when the session closes: a kernel that takes its place has the folder to itself."""
    async with KernelSession(cwd=tmp_path, sandbox=level) as kernel:
        assert kernel.pid is not None
        outermost = psutil.Process(kernel.pid)
        inside = outermost.children(recursive=True)
        assert inside
        outermost.kill()
        _, left = await asyncio.to_thread(psutil.wait_procs, inside, timeout=DEADLINE_S)
        assert left == []


async def test_a_claim_that_does_not_hold_is_an_error(
    tmp_path: Path, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable that the host did not mean to give is found in the kernel's environment."""
    module = chooser.mechanism(level)
    prepare = module.prepare

    def leaky(grant, command, given):  # type: ignore[no-untyped-def]
        return prepare(grant, command, {**given, "FORGOTTEN_KEY": "x"})

    monkeypatch.setattr(module, "prepare", leaky)
    with pytest.raises((KernelStartError, SandboxError), match=r"FORGOTTEN_KEY|environment"):
        await KernelSession(cwd=tmp_path, sandbox=level).start()


@pytest.mark.parametrize("home", ["/usr/sbin", "/", "/nonexistent", "/etc/ssl/certs", "/tmp"])
async def test_a_service_whose_home_is_a_place_of_the_system_gets_a_kernel(
    tmp_path: Path, level: str, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    """What the self-test takes for personal is not what every kernel may read."""
    monkeypatch.setenv("HOME", home)
    async with KernelSession(cwd=tmp_path, sandbox=level) as kernel:
        assert (await kernel.execute("1")).ok


async def test_a_kernel_starts_where_temporary_files_lie_elsewhere(
    tmp_path: Path, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on clusters, where TMPDIR names a disk of its own."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as elsewhere:
        Path(elsewhere).chmod(0o755)
        monkeypatch.setattr(tempfile, "tempdir", elsewhere)
        async with KernelSession(cwd=tmp_path, sandbox=level) as kernel:
            assert list(Path(elsewhere).glob("ka-*"))
            assert (await kernel.execute("1")).ok


def test_root_without_the_right_to_mount_gets_a_kernel() -> None:
    """As in most containers, where bubblewrap and namespaces do not work either."""
    python = os.environ.get("KERNEL_AGENT_USER_PYTHON", "")
    if os.geteuid() != 0 or not python:
        pytest.skip(
            "needs root, and KERNEL_AGENT_USER_PYTHON: an interpreter that others may start"
        )
    kept = "chown dac_override fowner fsetid kill setgid setuid setpcap net_bind_service net_raw "
    kept += "sys_chroot mknod audit_write setfcap"  # what podman and Docker leave to root
    with tempfile.TemporaryDirectory(dir="/var/tmp") as made:
        Path(made).chmod(0o755)
        (Path(made) / "sales.csv").write_text("month,sold\nMay,3\nJune,5\n")
        done = subprocess.run(
            [
                "setpriv", f"--bounding-set=-all,{','.join(f'+{name}' for name in kept.split())}",
                "--inh-caps=-all", python, "-P", "-m", "kernel_agent", "run", "Total sold",
                "--data", "sales.csv", "--model", "offline", "--sandbox", "landlock",
                "--out", "out", "--quiet",
            ],
            cwd=made, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stdout.strip()) == (0, "8"), done.stderr
        assert {path.lstat().st_uid for path in Path(made).rglob("*")} == {0}


async def test_a_kernel_with_a_link_and_a_blank_in_its_paths_starts(
    tmp_path: Path, level: str
) -> None:
    """The mount table writes them otherwise."""
    folder = tmp_path / "a folder" / "run"
    folder.mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "a folder")
    (folder / "trace.jsonl").write_text("secret")
    (folder / "old").mkdir()
    hidden = [tmp_path / "link" / "run" / name for name in ("trace.jsonl", "old")]
    access = Access(hidden=[folder / path.name for path in hidden], readable=[tmp_path / "link"])
    async with KernelSession(cwd=tmp_path / "link" / "run", sandbox=level, access=access) as kernel:
        assert (await kernel.execute("1")).ok


def test_a_notebook_application_gets_a_sandbox_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """nbclient asks for TCP; no network leads into a sandbox, so it is given unix sockets."""
    need("bubblewrap")
    kernels = tmp_path / "jupyter" / "kernels" / "boxed"
    kernels.mkdir(parents=True)
    launch = Path(chooser.__file__).parent.parent / "inkernel" / "launch.py"
    spec = (
        '{"argv": ["python", "%s", "-f", "{connection_file}"], "display_name": "x", '
        '"language": "python", "interrupt_mode": "message", "metadata": {"kernel_provisioner": '
        '{"provisioner_name": "kernel-agent", "config": {"level": "bubblewrap"}}}}'
    )
    (kernels / "kernel.json").write_text(spec % launch)
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    monkeypatch.setenv("SOME_API_KEY", "secret")
    folder = tmp_path / "notebooks"
    folder.mkdir()
    (folder / "old.txt").write_text("old")
    cells = [
        "open('old.txt', 'a').write('er')",
        "import os; print('SOME_API_KEY' in os.environ)",
        "import socket\ntry:\n    socket.socket()\nexcept OSError as e:\n    print(e.errno)",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells])
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, kernel_name="boxed", resources=resources).execute()
    assert [c.outputs[0].get("text") for c in notebook.cells[1:]] == ["False\n", "95\n"]
    assert (folder / "old.txt").read_text() == "older"


def test_an_unknown_level_is_one_line() -> None:
    with pytest.raises(SandboxError, match="choose among auto, bubblewrap"):
        chooser.choose("strict")
