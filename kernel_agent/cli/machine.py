"""The commands that look at this machine, or prepare it: doctor, microvm, kernelspec."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from kernel_agent.cli.outlet import write_line
from kernel_agent.errors import UsageError

UNUSABLE = 1  # the exit code of a level that does not work here


def install(
    *,
    name: Annotated[
        str, typer.Option(metavar="NAME", help="The name by which programs start it.")
    ] = "python-sandboxed",
    level: Annotated[
        str, typer.Option(metavar="LEVEL", help="The sandbox: auto, or a level.")
    ] = "auto",
    prefix: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Install below this directory instead of for you alone."),
    ] = None,
    sys_prefix: Annotated[
        bool, typer.Option("--sys-prefix", help="Install in this Python environment.")
    ] = False,
    live_displays: Annotated[
        bool,
        typer.Option(
            "--live-displays",
            help="Show HTML, JavaScript and widgets, too: they act with your login to Jupyter, and "
            "can leave the sandbox.",
        ),
    ] = False,
) -> None:
    """Install the kernel 'Python (sandboxed)' for every Jupyter application.

    Of your files, its cells may write those in the folder of their notebook, and read those and the
    Python environment.
    Text, pictures and tables that they display are shown; HTML, JavaScript and widgets are not.
    """
    from kernel_agent.cli.kernelspec import install as install_spec

    place = Path(sys.prefix) if sys_prefix else prefix
    write_line(install_spec(name, level=level, prefix=place, live_displays=live_displays))


def remove(name: Annotated[str, typer.Argument(metavar="NAME")] = "python-sandboxed") -> None:
    """Remove a kernel that install has made."""
    from kernel_agent.cli.kernelspec import remove as remove_spec

    write_line(remove_spec(name))


def doctor(
    *,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", help="Say what each level covers, and of each package."),
    ] = False,
) -> int:
    """Check that everything works on this machine.

    Looks at the packages, the model's configuration, the sandbox and the output folder, and starts
    a kernel. Nothing is sent to a model.
    """
    from kernel_agent.cli.doctor import examine
    from kernel_agent.cli.live import looking

    with looking("looking at this machine"):
        lines: list[str] = []
        code = examine(lines.append, verbose=verbose)
    write_line("\n".join(lines))
    return code


def microvm(
    action: Annotated[
        str, typer.Argument(metavar="build|status", help="Build the machine image, or look at it.")
    ] = "status",
) -> int:
    """Prepare the sandbox level microvm: a machine of its own for each kernel.

    Its image is built from this computer's interpreter, packages and Linux kernel, without a
    network, and lies in your cache directory. Build it again when packages have changed.
    """
    from kernel_agent.sandbox import microvm as level

    if action not in ("build", "status"):
        raise UsageError(f"there is no {action!r}: build or status")
    if action == "build":
        level.build(write_line)
    found = level.probe()
    write_line("\n".join(level.status(found)))
    return 0 if found.works else UNUSABLE
