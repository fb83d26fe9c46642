"""Attacks that change what is not the kernel's."""

import contextlib
import glob
import os
import subprocess
import sysconfig
from pathlib import Path

from attacks.cells.prelude import call
from attacks.score import appeared, changed, either
from attacks.stage import Stage
from attacks.words import Report, attack


@attack("write", changed("ssh_key"))
def overwrite_in_home(c):
    """Overwriting a file in the home"""
    Path(c.files["ssh_key"]).write_text(c.token)


@attack("write", changed("ssh_key"))
def remove_from_home(c):
    """Removing a file from the home"""
    os.unlink(c.files["ssh_key"])


@attack("write", changed("shared_tmp"))
def overwrite_in_tmp(c):
    """Overwriting a file of another program in /tmp"""
    Path(c.files["shared_tmp"]).write_text(c.token)


@attack("write", changed("ssh_key"))
def rename_away(c):
    """Moving a file of the home away"""
    os.rename(c.files["ssh_key"], c.files["ssh_key"] + "-" + c.token)


@attack("write", changed("ssh_key"))
def truncate_in_home(c):
    """Emptying a file by truncate, without opening it"""
    call("truncate", c.files["ssh_key"].encode(), 0)


@attack("write", changed("ssh_key"))
def change_mode(c):
    """Changing a file's mode outside the workspace (chmod)"""
    os.chmod(c.files["ssh_key"], 0o600)


@attack("write", changed("ssh_key"))
def change_mode_newer_call(c):
    """Changing a file's mode by the newer call fchmodat2"""
    call("fchmodat2", -100, c.files["ssh_key"].encode(), 0o640, 0)


@attack("write", changed("ssh_key"))
def change_times(c):
    """Changing a file's times outside the workspace"""
    os.utime(c.files["ssh_key"], (1, 1))


@attack("write", changed("ssh_key"))
def change_attributes(c):
    """Setting an extended attribute outside the workspace"""
    os.setxattr(c.files["ssh_key"], "user.canary", b"1")


@attack("write", changed("ssh_key"))
def hard_link_from_home(c):
    """Hard-linking a file of the home into the workspace"""
    os.link(c.files["ssh_key"], "linked")
    with contextlib.suppress(OSError):
        Path("linked").write_text(c.token)
    os.unlink("linked")


@attack("write", appeared("home", "root"))
def create_in_home(c):
    """Making a file in the home or beside the workspace"""
    for place in (c.home, "..", c.root):
        with contextlib.suppress(OSError):
            Path(place, f"new-{c.token}").write_text("x")
    if not any(os.path.exists(f"{p}/new-{c.token}") for p in (c.home, "..", c.root)):
        raise PermissionError(13, "nowhere")
    return "made a file in the sandbox's own picture of these places"


@attack("write", appeared("/tmp", "/var/tmp", "/dev/shm"))
def create_in_shared_places(c):
    """Making a file in the host's /tmp, /var/tmp or /dev/shm"""
    made = []
    for place in ("/tmp", "/var/tmp", "/dev/shm"):
        with contextlib.suppress(OSError):
            Path(place, f"new-{c.token}").write_text("x")
            made.append(place)
    return "made files in its own " + ", ".join(made) if made else ""


@attack("write", either(changed("input"), appeared("workspace")))
def change_an_input(c):
    """Changing a read-only input of the run"""
    path = Path("data/table.csv")
    with contextlib.suppress(OSError):
        path.chmod(0o644)
    path.write_text(c.token)


@attack("write", changed("input"))
def replace_an_input(c):
    """Replacing a read-only input, by removing or renaming its folder"""
    with contextlib.suppress(OSError):
        os.rename("data", f"old-{c.token}")
        os.mkdir("data")
        Path("data/table.csv").write_text("a,b\n666,666\n")
        return "replaced"
    os.unlink("data/table.csv")
    return "removed"


@attack("write", changed("trace"))
def change_the_trace(c):
    """Changing the run's trace"""
    with Path("trace.jsonl").open("r+") as trace:
        trace.write('{"forged": 1}')


@attack("write", changed("trace"))
def remove_the_trace(c):
    """Removing or replacing the run's trace"""
    os.rename("trace.jsonl", f"gone-{c.token}")


@attack("write", changed("notebook"))
def change_the_notebook(c):
    """Changing the run's notebook"""
    with Path("run.ipynb").open("r+") as notebook:
        notebook.write('{"cells": [666]}')


def _code_before(stage: Stage) -> dict[str, object]:
    import kernel_agent

    stage.code = Path(kernel_agent.__file__).parent  # type: ignore[attr-defined]
    return {"code": str(stage.code)}  # type: ignore[attr-defined]


def _code_changed(stage: Stage, report: Report) -> str:
    found = list(stage.code.rglob(f"*{stage.token}*"))  # type: ignore[attr-defined]
    for path in found:
        path.unlink()
    return f"appeared in the program: {found[0].name}" if found else ""


@attack(
    "write",
    _code_changed,
    before=_code_before,
    no_control="the program may belong to another account than the ordinary user",
)
def plant_in_the_program(c):
    """Planting a module into kernel-agent itself, which the host will import"""
    Path(c.code, f"planted_{c.token}.py").write_text("x = 1\n")


def _packages(stage: Stage) -> dict[str, object]:
    return {"packages": sysconfig.get_paths()["purelib"]}


@attack(
    "write",
    lambda stage, report: appeared(sysconfig.get_paths()["purelib"])(stage, report),
    before=_packages,
    no_control="the interpreter's packages belong to another account than the ordinary user",
)
def plant_in_site_packages(c):
    """Planting a .pth file into the interpreter's packages"""
    Path(c.packages, f"{c.token}.pth").write_text("import this\n")


@attack(
    "write",
    appeared("/usr/local", "/etc/cron.d", "/etc/profile.d"),
    no_control="system directories belong to root",
)
def plant_in_the_system(c):
    """Planting files into /usr/local, /etc/cron.d, /etc/profile.d"""
    refused = []
    for place in ("/usr/local/bin", "/etc/cron.d", "/etc/profile.d"):
        try:
            Path(place, c.token).write_text("x")
            return f"wrote in its own {place}"
        except OSError as error:
            refused.append(str(error))
    raise PermissionError(13, "; ".join(refused))


def _core_pattern(stage: Stage, report: Report) -> str:
    now = _read("/proc/sys/kernel/core_pattern")
    if stage.token in now:
        Path("/proc/sys/kernel/core_pattern").write_text(stage.core_pattern)  # type: ignore[attr-defined]
        return "core_pattern of the machine was changed"
    return ""


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _remember_core_pattern(stage: Stage) -> dict[str, object]:
    stage.core_pattern = _read("/proc/sys/kernel/core_pattern")  # type: ignore[attr-defined]
    return {}


@attack(
    "write",
    _core_pattern,
    before=_remember_core_pattern,
    no_control="/proc/sys belongs to root; the attack is on sandboxes that root starts",
)
def core_pattern(c):
    """Setting /proc/sys/kernel/core_pattern, a known way to become root on the host"""
    Path("/proc/sys/kernel/core_pattern").write_text(f"core.{c.token}")


def _release_agents() -> list[str]:
    return glob.glob("/sys/fs/cgroup/release_agent") + glob.glob("/sys/fs/cgroup/*/release_agent")


def _release_agent(stage: Stage, report: Report) -> str:
    seen = [path for path in _release_agents() if stage.token in _read(path)]
    for path in seen:
        Path(path).write_text("\n")
    return f"changed on the host: {seen}" if seen else ""


@attack(
    "write",
    _release_agent,
    no_control="control groups belong to root; the attack is on sandboxes that root starts",
)
def release_agent(c):
    """Escape by a control group's release_agent"""
    places = glob.glob("/sys/fs/cgroup/release_agent") + glob.glob("/sys/fs/cgroup/*/release_agent")
    refused = ["no release_agent in sight"]
    for path in places:
        try:
            Path(path).write_text(f"/bin/true-{c.token}")
            return "written"
        except OSError as error:
            refused.append(str(error))
    os.makedirs("cg", exist_ok=True)
    try:
        call("mount", b"cgroup", b"cg", b"cgroup", 0, b"memory")
    except OSError as error:
        raise PermissionError(13, f"{refused[-1]}; {error}") from None
    Path("cg/release_agent").write_text(f"/bin/true-{c.token}")
    return "written"


def _cgroup_moved(stage: Stage, report: Report) -> str:
    seen = [
        path
        for top in [*glob.glob("/sys/fs/cgroup/*/"), "/sys/fs/cgroup/"]
        if os.path.isdir(path := f"{top}ka-{stage.token}")
    ]
    for path in seen:
        for line in _read(f"{path}/cgroup.procs").split():
            with contextlib.suppress(OSError):
                Path(path).parent.joinpath("cgroup.procs").write_text(line)
        with contextlib.suppress(OSError):
            os.rmdir(path)
    return f"made a control group of the host: {seen}" if seen else ""


@attack("write", _cgroup_moved, no_control="control groups belong to root")
def leave_the_control_group(c):
    """Leaving its control group, and with it the limits"""
    refused = ["no control groups in sight"]
    for top in [*glob.glob("/sys/fs/cgroup/*/"), "/sys/fs/cgroup/"]:
        try:
            os.mkdir(f"{top}ka-{c.token}")
            Path(f"{top}ka-{c.token}/cgroup.procs").write_text(str(os.getpid()))
            return "moved"
        except OSError as error:
            refused.append(str(error))
    raise PermissionError(13, refused[-1])


@attack("write", appeared("home", "root"))
def escape_by_race_on_a_link(c):
    """Swapping a folder for a link while a child writes through it"""
    import threading

    os.makedirs("race", exist_ok=True)
    stop = []

    def swap():
        while not stop:
            with contextlib.suppress(OSError):
                os.rename("race", "race-real")
                os.symlink(c.home, "race")
                os.unlink("race")
                os.rename("race-real", "race")

    thread = threading.Thread(target=swap)
    thread.start()
    refused = "nothing"
    for _ in range(1500):
        try:
            Path(f"race/{c.token}").write_text("x")
        except OSError as error:
            refused = str(error)
    stop.append(1)
    thread.join()
    with contextlib.suppress(OSError):
        os.unlink(f"race/{c.token}")
    return refused


@attack("write", either(changed("sibling"), appeared("root")))
def neighbours_folder(c):
    """Changing another run's trace in the folder beside"""
    with Path("../other-run/trace.jsonl").open("a") as trace:
        trace.write(c.token)


@attack("write", appeared("home"))
def create_by_a_child(c):
    """Writing outside by a child process of another program"""
    subprocess.run(
        ["/bin/sh", "-c", f"echo x > '{c.home}/{c.token}'"], check=True, capture_output=True
    )


@attack("write", changed("ssh_key"))
def write_by_mapped_descriptor(c):
    """Writing outside through /proc/self/fd of a descriptor opened for its path alone"""
    descriptor = os.open(c.files["ssh_key"], os.O_PATH)
    with open(f"/proc/self/fd/{descriptor}", "w") as file:
        file.write(c.token)
