"""The kernel "Python (sandboxed)" for JupyterLab, nbclient, papermill and every other application.

A kernelspec that names our provisioner. It starts an ipykernel as it is in a sandbox, so that what
works in a plain kernel works there: ``input()``, completion, progress. What the sandbox grants is
the folder that the application starts the kernel in, which is the notebook's. What the application
is told by the kernel goes through a relay, unless the user wants its HTML and widgets live.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from kernel_agent.errors import SandboxError, UsageError
from kernel_agent.sandbox import KERNEL_LAUNCHER, choose, host_python

DISPLAY_NAME = "Python (sandboxed)"
PROVISIONER = "kernel-agent"


def specification(level: str, *, live_displays: bool = False) -> dict[str, Any]:
    """Return the content of ``kernel.json``."""
    config = {"level": level, **({"live_displays": True} if live_displays else {})}
    return {
        "argv": [str(host_python()), str(KERNEL_LAUNCHER), "--plain", "-f", "{connection_file}"],
        "display_name": DISPLAY_NAME,
        "language": "python",
        "interrupt_mode": "message",
        "metadata": {
            "debugger": False,
            "kernel_provisioner": {"provisioner_name": PROVISIONER, "config": config},
        },
    }


def install(
    name: str, *, level: str = "auto", prefix: Path | None = None, live_displays: bool = False
) -> str:
    """Install the kernelspec and return what to tell the user.

    Parameters
    ----------
    name
        The name by which programs start it.
    level
        A sandbox level, or ``auto`` for the best at the time of each start.
    prefix
        Install below ``prefix/share/jupyter``; for this user alone by default.
    live_displays
        Pass on whatever a cell displays: HTML, JavaScript, widgets.

    Raises
    ------
    SandboxError
        The level does not work here, or has no such kernel: what could not start is not offered.
    UsageError
        The name is not valid, or the place cannot be written.
    """
    from jupyter_client.kernelspec import KernelSpecManager

    if not re.fullmatch(r"[A-Za-z0-9._-]+", name):
        raise UsageError(f"a kernel's name has letters, digits, dots, hyphens only, not {name!r}")
    chosen = choose(level)
    if chosen.kernel != "process":
        raise SandboxError(f"the level {chosen.name} is for sessions of kernel-agent only")
    if os.geteuid() == 0 and not chosen.takes_any_folder:
        raise SandboxError(f"the level {chosen.name} has no kernel in a folder of yours for root")
    with tempfile.TemporaryDirectory() as made:
        content = specification(level, live_displays=live_displays)
        (Path(made) / "kernel.json").write_text(json.dumps(content, indent=1))
        try:
            place = KernelSpecManager().install_kernel_spec(
                made, kernel_name=name, user=prefix is None, prefix=str(prefix) if prefix else None,
            )  # fmt: skip
        except OSError as error:
            where = f" in {error.filename}" if error.filename else ""
            raise UsageError(f"cannot install the kernel{where}: {error.strerror}") from None
    return (
        f"{DISPLAY_NAME} is installed as {name} in {place}\n"
        f"Sandbox here: {chosen.name} ({chosen.summary}).\n"
        f"{_statement(confined=chosen.confines, live=live_displays)}\n"
        f"The Jupyter application must run in an environment with kernel-agent ({sys.prefix})."
    )


def _statement(*, confined: bool, live: bool) -> str:
    """Say what its cells may use, and what the application shows of them."""
    if not confined:
        return (
            "Its cells have all of your rights: nothing that they display could add to those, and "
            "it is passed on as it is."
        )
    reach = (
        "Of your files, its cells may write those in the folder of their notebook, and read those "
        "and the Python environment."
    )
    if live:
        return (
            f"{reach} But JupyterLab and Notebook run HTML and JavaScript that a cell displays, "
            "with your login there: one line of it can start a kernel without a sandbox. Use it "
            "for code that you trust."
        )
    return (
        f"{reach} Of what they display, text, pictures and tables are shown; HTML, JavaScript and "
        "widgets are not, as they would act with your login to Jupyter (--live-displays shows "
        "them)."
    )


def remove(name: str) -> str:
    """Remove a kernelspec that :func:`install` wrote; return what to tell the user.

    Raises
    ------
    UsageError
        There is no kernelspec of this name, it belongs to another program, or it cannot be removed.
    """
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

    manager = KernelSpecManager()
    try:
        found = manager.get_kernel_spec(name)
        provisioner = found.metadata.get("kernel_provisioner", {}).get("provisioner_name")
        if provisioner != PROVISIONER:
            raise UsageError(f"the kernel {name} was not installed by kernel-agent")
        place = manager.remove_kernel_spec(name)
    except NoSuchKernel:
        raise UsageError(f"there is no kernel {name}") from None
    except OSError as error:
        raise UsageError(f"cannot remove the kernel {name}: {error.strerror}") from None
    return f"Removed {place}"
