"""A bwrap that does not do all that it is told: what does not hold is found, and nothing runs.

The program stands for a bwrap that is old, wrapped, or patched by whoever packaged it. What it
leaves out must be refused by the self-test; where another layer does the same, the level's claim is
true all the same and the kernel starts.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.levels import need

from kernel_agent.errors import KernelStartError, SandboxError
from kernel_agent.kernel import Access, KernelSession
from kernel_agent.sandbox import programs

WRAPPER = """#!/usr/bin/python3 -IS
import os, sys
words = sys.argv[1:]
at = words.index("--")
options, command = words[:at], words[at:]
def drop(name, values=0, last=None):
    found, i = [], 0
    while i < len(options):
        if options[i] == name and (last is None or options[i + values] in last):
            i += 1 + values
        else:
            found.append(options[i])
            i += 1
    options[:] = found
def add(*words):
    at = max(i for i, word in enumerate(options) if options[i:i + 2] == ["--remount-ro", "/dev"])
    options[at:at] = words
HIDDEN = {hidden!r}
{change}
os.execv("/usr/bin/bwrap", ["bwrap", *options, *command])
"""

REFUSED = {
    "no process namespace": "drop('--unshare-pid')",
    "no network namespace": "drop('--unshare-net')",
    "no IPC namespace": "drop('--unshare-ipc')",
    "no UTS namespace": "drop('--unshare-uts'); drop('--hostname', 1)",
    "read-only is writable": "options[:] = ['--bind' if o == '--ro-bind' else o for o in options]",
    "inputs are writable": "drop('--ro-bind', 2, [HIDDEN[1]])",
    "the trace is not hidden": "drop('--ro-bind', 2, [HIDDEN[0]])",
    "a further variable": "options += ['--setenv', 'SOME_KEY', 'x']",
    "the root stays writable": "drop('--remount-ro', 1)",
    "temporary files without a limit": "drop('--size', 1)",
    "all of /etc": "add('--ro-bind', '/etc', '/etc')",
    "all of /var": "add('--ro-bind', '/var', '/mnt')",
    "the home": "add('--ro-bind', os.path.expanduser('~'), '/home')",
    "a writable tree": "add('--bind', '/var/tmp', '/srv')",
    "the host's devices": "add('--dev-bind', '/dev', '/dev')",
    "the host's processes": "add('--ro-bind', '/proc', '/proc')",
    "no sandbox": "os.execv(command[1], command[1:])",
}
HELD_ELSEWHERE = {
    "no end with its parent": "drop('--die-with-parent')",
    "no session of its own": "drop('--new-session')",
    "capabilities are kept": "drop('--cap-drop', 1)",
    "no control group namespace": "drop('--unshare-cgroup-try')",
}


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """Start a kernel in a folder with an input and a trace, by a bwrap that was changed."""
    need("bubblewrap")
    folder = tmp_path / "run"
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "a.csv").write_text("a\n1\n")
    (folder / "trace.jsonl").write_text("secret")
    hidden = [str(folder / "trace.jsonl"), str(folder / "data")]

    async def begin(change: str) -> None:
        place = tmp_path / "bin"
        place.mkdir()
        (place / "bwrap").write_text(WRAPPER.format(hidden=hidden, change=change))
        (place / "bwrap").chmod(0o755)
        tmp_path.chmod(0o755)
        monkeypatch.setenv(programs.VARIABLE, str(place))
        monkeypatch.setenv("PATH", str(place), prepend=":")
        access = Access(protected=[folder / "data"], hidden=[folder / "trace.jsonl"])
        async with KernelSession(cwd=folder, sandbox="bubblewrap", access=access) as kernel:
            assert (await kernel.execute("1")).ok

    return begin


@pytest.mark.parametrize("what", REFUSED)
async def test_what_bwrap_leaves_out_is_found_before_a_cell_runs(what: str, start) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(
        (SandboxError, KernelStartError), match=r"does not hold what it claims|sandbox: folder"
    ):
        await start(REFUSED[what])


@pytest.mark.parametrize("what", HELD_ELSEWHERE)
async def test_what_another_layer_holds_is_no_reason_to_refuse(what: str, start) -> None:  # type: ignore[no-untyped-def]
    await start(HELD_ELSEWHERE[what])


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user may not write there anyway")
async def test_as_root_the_machines_settings_are_read_only(start) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(
        (SandboxError, KernelStartError), match=r"does not hold what it claims|sandbox: folder"
    ):
        await start("drop('--ro-bind', 2, ['/proc/sys'])")


async def test_a_whole_bwrap_by_another_name_starts(start) -> None:  # type: ignore[no-untyped-def]
    await start("")
