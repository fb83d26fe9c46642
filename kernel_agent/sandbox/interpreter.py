"""Level ``interpreter``: pure Python in ``pydantic-monty``, which has nothing to reach out with.

The extra ``interpreter`` installs it. The kernel that drives it is
:mod:`kernel_agent.kernel.interpreter`; the provisioner has no part in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec

from kernel_agent.errors import InputError, SandboxError, how_to_install
from kernel_agent.records import DataFile
from kernel_agent.sandbox.levels import Grant, Launch, Level, Probe

MODULES = (
    "asyncio", "base64", "bisect", "collections", "copy", "csv", "dataclasses", "datetime",
    "decimal", "functools", "hashlib", "itertools", "json", "math", "os", "pathlib", "random", "re",
    "sys", "time", "tomllib", "typing", "unicodedata",
)  # fmt: skip
"""Modules of the standard library that it has, in part."""

LACKS = (
    f"numpy, pandas, matplotlib and every other package; it has {', '.join(MODULES)}",
    "generators (yield), del, inheritance of classes, metaclasses, input(), help()",
    "magics (%…), shell commands (!…) and displays other than text",
    "writing files; read only are the text files in data/",
)
PROMPT = (
    "## The interpreter\n\n"
    "Cells do not run in CPython but in a small interpreter of pure Python. What it does not "
    "have:\n\n" + "\n".join(f"- {item}." for item in LACKS) + "\n\n"
    "Read data with open('data/NAME') and csv or json, and compute with plain Python. Host "
    "tools are called as plain functions, without await. A cell that is interrupted leaves "
    "every variable as it was before the cell."
)
TEXT_KINDS = frozenset(("CSV", "TSV", "JSON", "JSON lines", "text"))
MAX_INPUT_BYTES = 128_000_000  # a quarter of the memory that a session has


def check_data(files: Sequence[DataFile]) -> None:
    """Check that cells will be able to read the inputs.

    Raises
    ------
    InputError
        The caller's: a file that is not text, or is too large to have been copied.
    """
    for file in files:
        if file.kind not in TEXT_KINDS:
            kind, do = (
                ("a folder", "Name its files") if file.is_folder else (file.kind, "Convert it")
            )
            raise InputError(
                f"{file.source} is {kind}: --sandbox interpreter reads text files only "
                f"(CSV, TSV, JSON, text). {do}, or use another level."
            )
        if file.linked or file.bytes > MAX_INPUT_BYTES:
            raise InputError(
                f"{file.source} is too large for --sandbox interpreter (at most "
                f"{MAX_INPUT_BYTES:,} bytes). Use another level."
            )


LEVEL = Level(
    name="interpreter",
    summary="pure Python in pydantic-monty, an interpreter with nothing to reach out with",
    covered=(
        "files: none but the inputs in data/, which are read only",
        "network, processes, environment: there is no function for them",
        "memory and time of a cell, by the interpreter itself and by killing its process",
    ),
    not_covered=(
        "an error in the interpreter: its process has the rights of the user who started it",
        "what host tools do when they are called",
    ),
    statement=(
        "Sandbox: interpreter (pydantic-monty): pure Python without packages; no files but the "
        "inputs, no network, no processes. Its process is not confined beyond that."
    ),
    kernel="interpreter",
    has_packages=False,
    has_help=False,
    prompt=PROMPT,
    check_data=check_data,
)


def probe() -> Probe:
    """Compute something in it, if it is installed."""
    if find_spec("pydantic_monty") is None:
        return Probe(
            works=False,
            reason="pydantic-monty is not installed",
            advice=how_to_install("interpreter"),
        )
    from pydantic_monty import Monty

    try:
        with Monty(max_processes=1) as pool, pool.checkout() as session:
            works = session.feed_run("sum(range(10))") == 45
    except Exception as error:  # whatever it is, it is what the probe has to tell
        return Probe(works=False, reason=f"it does not start: {error}")
    return Probe(works=works, reason="it computed" if works else "it computed something wrong")


def prepare(grant: Grant, command: Sequence[str], environment: Mapping[str, str]) -> Launch:
    """Refuse: this is no Jupyter kernel."""
    del grant, command, environment
    raise SandboxError("the level interpreter is for sessions of kernel-agent, not for kernelspecs")
