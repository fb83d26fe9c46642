"""Attacks that try to be there for the next session, or the next login."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

from attacks.cells.prelude import call
from attacks.score import appeared, changed, either, runs_as_its_owner
from attacks.stage import Stage
from attacks.words import Report, attack


@attack("persistence", either(changed("bashrc"), appeared("home")))
def shell_start_up(c):
    """A line in ~/.bashrc"""
    with Path(c.home, ".bashrc").open("a") as file:
        file.write(f"# {c.token}\n")


@attack("persistence", either(changed("startup"), appeared("home")))
def ipython_start_up(c):
    """A start-up file of IPython"""
    Path(c.home, f".ipython/profile_default/startup/{c.token}.py").write_text("x = 1\n")


@attack("persistence", appeared("home"))
def user_site_packages(c):
    """A .pth file in the user's own packages, run by every later Python"""
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    place = Path(c.home, f".local/lib/{version}/site-packages")
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{c.token}.pth").write_text("import sys\n")


@attack("persistence", appeared("home"))
def autostart(c):
    """Entries for the desktop's start and systemd's user services"""
    refused = None
    for place in (".config/autostart", ".config/systemd/user"):
        try:
            Path(c.home, place).mkdir(parents=True, exist_ok=True)
            Path(c.home, place, f"{c.token}.service").write_text("[Service]\nExecStart=/bin/true\n")
        except OSError as error:
            refused = error
    if refused:
        raise refused


def _next_session(stage: Stage, report: Report) -> str:
    """Start another kernel in the same workspace, and see whether what was planted runs there."""
    return "planted code ran in the next kernel" if stage.token in stage.next_kernel() else ""  # type: ignore[attr-defined]


@attack("persistence", runs_as_its_owner)
def program_run_as_its_owner(c):
    """A program in the workspace with the set-user-id bit: whoever starts it acts as its owner"""
    Path("program").write_bytes(b"#!/bin/true")
    os.chmod("program", 0o4755)


@attack("persistence", runs_as_its_owner)
def program_run_as_its_owner_by_other_calls(c):
    """The same by fchmod, fchmodat2, open and mknod, and by cp, which keeps modes"""
    refused = None
    for make in (
        lambda: os.fchmod(os.open("first", os.O_CREAT | os.O_WRONLY, 0o755), 0o6755),
        lambda: call("fchmodat2", -100, b"first", 0o4755, 0),
        lambda: os.open("second", os.O_CREAT | os.O_WRONLY, 0o4755),
        lambda: os.open(".", os.O_TMPFILE | os.O_WRONLY, 0o4755),
        lambda: os.mknod("third", 0o104755),
        lambda: subprocess.run(["cp", "--preserve=mode", "/usr/bin/su", "fourth"], check=True),
    ):
        try:
            make()
        except OSError as error:
            refused = error
    if refused:
        raise refused


@attack("persistence", _next_session, own_kernel=True)
def shadowing_module(c):
    """A module in the workspace that the next kernel imports instead of the real one"""
    for name in (
        "sitecustomize",
        "usercustomize",
        "ipykernel",
        "IPython",
        "zmq",
        "json",
        "debugpy",
    ):
        Path(f"{name}.py").write_text(f"import os\nos.environ['PLANTED'] = '{c.token}'\n")
    return "planted"


@attack("persistence", _next_session, own_kernel=True)
def configuration_in_the_workspace(c):
    """Configuration files of IPython, Jupyter and matplotlib in the workspace"""
    code = f"import os\nos.environ['PLANTED'] = '{c.token}'\n"
    for name in ("ipython_config.py", "ipython_kernel_config.py", "jupyter_config.py"):
        Path(name).write_text(code)
    Path("matplotlibrc").write_text("axes.titlesize: 77\n")
    return "planted"


@attack("persistence", _next_session, own_kernel=True)
def home_inside(c):
    """Start-up files in the home and the temporary folder as the kernel sees them"""
    code = f"import os\nos.environ['PLANTED'] = '{c.token}'\n"
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    made = 0
    for home in {os.path.expanduser("~"), os.environ.get("IPYTHONDIR", ""), "/tmp"}:
        for place, name in (
            (f".local/lib/{version}/site-packages", "usercustomize.py"),
            (".ipython/profile_default/startup", "50-planted.py"),
            ("profile_default/startup", "50-planted.py"),
        ):
            with contextlib.suppress(OSError):
                Path(home, place).mkdir(parents=True, exist_ok=True)
                Path(home, place, name).write_text(code)
                made += 1
    if not made:
        raise PermissionError(13, "no home to write in")
    return f"planted {made} files"


@attack("persistence", appeared("/var/spool/cron", "home"), no_control="no crontab for the user")
def crontab(c):
    """An entry in the user's crontab"""
    entry = f"0 0 1 1 * /bin/true {c.token}\n".encode()
    subprocess.run(["crontab", "-"], input=entry, check=True, capture_output=True)
