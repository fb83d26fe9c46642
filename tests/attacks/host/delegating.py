"""A cell that delegates: the names of its agents' folders are its own choice.

A whole session at the level that is played. What counts is what is left on the host of a folder of
the user's, in the places where agents' folders go, and whether anything came into a link's target.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from attacks.words import Report, host_attack

if TYPE_CHECKING:
    from attacks.stage import Stage

TASK, NAME = "BENEATH go", "1-beneath-go"
CELL = f"""
try:
    delegate({TASK!r})
except RuntimeError as error:
    print(error)
final_answer(1)
"""
PLACES = ("project/agents", "project.agents")
"""Where agents' folders go: in the run's folder, or beside it where nothing can be hidden."""


def _harmed(stage: Stage, report: Report) -> str:
    return report.text if report.text.startswith("harmed: ") else ""


@host_attack("write", _harmed, timeout_s=150)
async def agents_folder_that_is_there(folder: Path) -> str:
    """An agent is given the name of a folder of the user's in agents/"""
    for place in PLACES:
        _plant(folder / place)
    await _run(folder)
    return _seen([folder / place for place in PLACES])


@host_attack("write", _harmed, timeout_s=150)
async def agents_folder_that_is_a_link(folder: Path) -> str:
    """agents/ is a link that leads out of the run's folder, to a folder with an agent's name"""
    target = folder / "elsewhere"
    _plant(target)
    (folder / "project").mkdir()
    for place in PLACES:
        (folder / place).symlink_to(target)
    await _run(folder)
    links = [place for place in PLACES if not (folder / place).is_symlink()]
    return f"harmed: no link any more: {', '.join(links)}" if links else _seen([target])


def _plant(place: Path) -> None:
    (place / NAME).mkdir(parents=True)
    (place / NAME / "thesis.txt").write_text("years of work")


def _seen(places: list[Path]) -> str:
    """Say what is not as it was planted."""
    lost = [place.name for place in places if not (place / NAME / "thesis.txt").is_file()]
    found = sorted({path.name for place in places for path in place.rglob("*")})
    more = [name for name in found if name not in (NAME, "thesis.txt")]
    if lost or more:
        return f"harmed: the file is gone from {lost}; came there: {more}"
    raise PermissionError(1, "all is as it was")


async def _run(folder: Path) -> None:
    """Let a cell delegate to an agent that leaves a file and answers."""
    from kernel_agent import ScriptedModel, Session

    beneath = "open('planted.txt', 'w').close()\nfinal_answer(2)"
    replies = [
        {"content": f"```python\n{CELL}\n```"},
        {"for": TASK, "content": f"```python\n{beneath}\n```"},
    ]
    async with Session(
        model=ScriptedModel(replies),
        out=folder / "project",
        tools=["delegate"],
        format="fenced",
        sandbox=os.environ.get("PLAYED_LEVEL", "auto"),
    ) as session:
        run = await session.run("Ask somebody.")
    if run.answer != 1:
        raise RuntimeError(f"the run did not answer: {run.status} {run.message}")
