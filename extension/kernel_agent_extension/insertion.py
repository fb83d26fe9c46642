"""What a user does with a run that has ended: its code as a cell, its table as a file, undo."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from kernel_agent.errors import KernelAgentError
from kernel_agent.records import Code, DataFile, Event, Notice
from kernel_agent.safe import one_line
from kernel_agent.session import Run, keep_answer
from kernel_agent_extension.conversation import Talk
from kernel_agent_extension.views import Offers, Tell

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


def offers_of(talk: Talk, run: Run, begin: Callable[[Coroutine[Any, Any, None]], Any]) -> Offers:
    """Return what can be done with a run that has ended, for buttons below its page.

    Parameters
    ----------
    talk
        The session of the run.
    run
        The run.
    begin
        Starts work on the sessions' loop.
    """

    def work_on(work: Callable[[], Awaitable[Event]], failed: str) -> Callable[[Tell], None]:
        async def tell_of_it(tell: Tell) -> None:
            try:
                tell(await work())
            except (KernelAgentError, OSError) as error:  # good: it is to stand below the page
                tell(Notice(text=f"{failed}: {one_line(str(error), 300)}.", good=True))

        return lambda tell: begin(tell_of_it(tell))

    async def save() -> Notice:
        name = await asyncio.to_thread(keep_answer, run)
        return Notice(text=f"Saved: {run.trace.with_name(name)}", good=True)

    offers: dict[str, str | Callable[[Tell], None]] = {}
    if any(step.ok and step.code for step in run.steps):
        offers["Copy code"] = code_of(run, talk.session.files)
    if hasattr(run.value, "to_csv") and not run.instead:
        offers["Save table"] = work_on(save, "Not saved")
    if run.steps and not talk.once:
        offers["Undo question"] = work_on(lambda: talk.undo_run(run), "Not undone")
    return offers


def _with_sources(source: str, files: Sequence[DataFile]) -> str:
    """Return code that reads the inputs themselves instead of the session's copies."""
    for file in files:
        for quote in "\"'":
            source = source.replace(f"{quote}{file.path}{quote}", repr(file.source))
    return source
