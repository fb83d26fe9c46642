"""The code of a run as one cell for the user's own kernel."""

from __future__ import annotations

from collections.abc import Sequence

from kernel_agent.records import Code, DataFile
from kernel_agent.safe import one_line
from kernel_agent.session import Run

ANSWER = """\
def final_answer(value):
    display(value)
"""


def code_of(run: Run, files: Sequence[DataFile] = ()) -> str:
    """Return a run's code as the source of one cell.

    Steps that failed are left out and named. Inputs are read from where they came from, variables
    that were passed in are those of the user.

    Parameters
    ----------
    run
        The run.
    files
        The session's inputs.
    """
    parts = [
        f"# {one_line(run.task, 90)}\n# The code of run {run.run_id}: read it before you run it."
    ]
    cells = [step for step in run.steps if isinstance(step.action, Code)]
    if any("final_answer" in step.code for step in cells if step.ok):
        parts.append(ANSWER)
    for step in cells:
        if step.ok:
            parts.append(f"# step {step.number}\n{_with_sources(step.code.strip(), files)}")
        else:
            parts.append(f"# step {step.number} failed and is left out")
    return "\n\n".join(part.rstrip() for part in parts)


def _with_sources(source: str, files: Sequence[DataFile]) -> str:
    """Return code that reads the inputs themselves instead of the session's copies."""
    for file in files:
        for quote in "\"'":
            source = source.replace(f"{quote}{file.path}{quote}", repr(file.source))
    return source
