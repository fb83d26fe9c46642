"""Where agents work: in folders that the session has made, never in one of the user's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.replies import cell

from kernel_agent import ScriptedModel, Session
from kernel_agent.errors import InputError
from kernel_agent.sandbox.chooser import level_of

LEVEL = os.environ.get("KERNEL_AGENT_TEST_SANDBOX", "auto")
ASK = cell("try:\n    got = delegate('Count')\nexcept RuntimeError as e:\n    got = str(e)\ngot")
SAY = cell("final_answer(got)")
COUNT = {"for": "Count", "content": cell("final_answer(1)")}


def make(out: Path) -> Session:
    model = ScriptedModel([ASK, SAY, COUNT])
    return Session(model=model, out=out, tools=["delegate"], sandbox=LEVEL)


def agents_of(session: Session, out: Path) -> Path:
    """Return the first place in which the agents' folder may be, by the session's level."""
    hides = level_of(session.sandbox).hides_paths
    return out / "agents" if hides else out.with_name(f"{out.name}.agents")


def both(out: Path) -> list[Path]:
    return [out / "agents", out.with_name(f"{out.name}.agents")]


async def test_folders_that_are_there_keep_what_is_in_them(tmp_path: Path) -> None:
    out = tmp_path / "out"
    theirs = [agents / "1-count" / "thesis.txt" for agents in both(out)]
    for path in theirs:
        path.parent.mkdir(parents=True)
        path.write_text("years of work")
    async with make(out) as session:
        run = await session.run("Ask somebody")
    assert run.answer == 1
    assert [path.read_text() for path in theirs] == ["years of work"] * 2
    assert [len(list(path.parent.iterdir())) for path in theirs] == [1, 1]
    assert run.agents[0].folder.endswith("agents-2/1-count")
    assert (out / run.agents[0].folder / "run.ipynb").is_file()
    assert not [path for path in run.files if "agents" in str(path)]


async def test_an_empty_folder_of_the_users_stays_when_no_agent_was_asked(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for agents in both(out):
        agents.mkdir(parents=True)
    async with make(out):
        pass
    assert all(agents.is_dir() for agents in both(out))
    assert not list(tmp_path.glob("**/*agents-2"))


async def test_a_link_in_the_place_of_their_folder_is_not_followed(tmp_path: Path) -> None:
    out, target = tmp_path / "out", tmp_path / "elsewhere"
    out.mkdir()
    (target / "1-count").mkdir(parents=True)
    for agents in both(out):
        agents.symlink_to(target)
    async with make(out) as session:
        run = await session.run("Ask somebody")
    assert run.answer == 1
    assert list(target.rglob("*")) == [target / "1-count"]
    assert all(agents.is_symlink() for agents in both(out))


@pytest.mark.long
async def test_a_name_that_is_taken_gets_another_number(tmp_path: Path) -> None:
    out = tmp_path / "out"
    async with make(out) as session:
        theirs = agents_of(session, out) / "1-count" / "thesis.txt"
        theirs.parent.mkdir()
        theirs.write_text("years of work")
        run = await session.run("Ask somebody")
    assert (run.answer, run.agents[0].name) == (1, "1-count-2")
    assert theirs.read_text() == "years of work"


async def test_a_folder_that_was_put_in_place_of_theirs_is_left_alone(tmp_path: Path) -> None:
    out, target = tmp_path / "out", tmp_path / "elsewhere"
    async with make(out) as session:
        agents = agents_of(session, out)
        agents.rename(target)
        agents.symlink_to(target)
        run = await session.run("Ask somebody")
    assert "no folder can be made for an agent: " in run.answer
    assert "it is a link" in run.answer
    assert list(target.iterdir()) == []
    assert agents.is_symlink()


async def test_a_notebook_of_the_users_with_the_name_of_the_runs_is_not_lost(
    tmp_path: Path,
) -> None:
    (tmp_path / "run.ipynb").write_text("{}")
    with pytest.raises(InputError, match=r"has a run\.ipynb already") as told:
        async with make(tmp_path):
            pass
    assert "\n" not in str(told.value)
    assert [path.name for path in tmp_path.iterdir()] == ["run.ipynb"]
    assert (tmp_path / "run.ipynb").read_text() == "{}"


async def test_agents_have_their_folder_and_cells_do_not_see_it_after_an_undo(
    tmp_path: Path,
) -> None:
    again = cell("got = delegate('Count')\nimport os\nfinal_answer([got, os.listdir('agents')])")
    model = ScriptedModel([cell("final_answer(delegate('Count'))"), again, COUNT, COUNT])
    async with Session(model=model, out=tmp_path, tools=["delegate"], sandbox="bubblewrap") as s:
        await s.run("Ask somebody")
        before = (tmp_path / "agents").stat().st_ino
        await s.undo(1)
        assert list((tmp_path / "agents").iterdir()) == []
        run = await s.run("Ask again")
    assert run.answer == [1, []]
    assert (tmp_path / "agents").stat().st_ino == before
    assert (tmp_path / run.agents[0].folder / "run.ipynb").is_file()
