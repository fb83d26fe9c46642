"""Variables between the user and a kernel in this process."""

import json
from datetime import date

import numpy as np
import pandas as pd
import pytest

from kernel_agent import FakeKernel, Session
from kernel_agent.agent.task import given_text
from kernel_agent.errors import InputError, UsageError
from kernel_agent.records.cell import CellResult
from kernel_agent.records.endings import ExitStatus
from kernel_agent.session.variables import Exchange

TABLE = pd.DataFrame(
    {"month": ["May", "June"], "sold": [3.5, None], "when": pd.to_datetime(["2026-05-01"] * 2)},
    index=pd.Index(["a", "b"], name="row"),
)


def script(folder, *cells):
    """Write replies with one cell each; return the name of the model that plays them back."""
    replies = [{"content": f"Thinking.\n```python\n{cell}\n```"} for cell in cells]
    path = folder / "script.jsonl"
    path.write_text("".join(json.dumps(reply) + "\n" for reply in replies))
    return f"scripted:{path}"


async def test_what_holds_plain_values_under_a_type_of_its_own_is_put_as_those(tmp_path):
    async with Session(kernel=FakeKernel, model="offline", out=tmp_path / "out") as session:
        given = await session.put({"days": range(3), "columns": TABLE.columns})
        back = await session.take(["days", "columns"])
    assert [g.type for g in given] == ["list", "list"]
    assert back == {"days": [0, 1, 2], "columns": list(TABLE.columns)}


async def test_what_has_no_form_is_one_line_that_names_it(tmp_path):
    """In both directions; nothing of such a call is set."""
    async with Session(kernel=FakeKernel, model="offline", out=tmp_path / "out") as session:
        for value, reason in (
            (object(), "a object"),
            ({"a": TABLE}, "DataFrame within it"),
            (pd.DataFrame([[1, 2]], columns=["a", "a"]), "several columns of one name"),
            (pd.DataFrame({"a": [1, "x"]}), "Arrow cannot hold"),
            (pd.DataFrame({"a": pd.cut([1, 2], 2)}), "column a are of type pandas.interval"),
            (pd.DataFrame({"b": [1, 2]}, index=pd.cut([1, 2], 2)), "pandas.interval, .*astype"),
            (pd.DataFrame({"a": [1], 2: [3]}), "mixed type"),
            (np.array([object()]), "array of object"),
            (np.ma.array([1, 2], mask=[False, True]), "numpy int64 .*tolist"),
        ):
            with pytest.raises(InputError, match=f"^bad cannot be passed in: .*{reason}") as told:
                await session.put({"good": 1, "bad": value})
            assert "\n" not in str(told.value)
        for name in ("class", "a b", "final_answer"):
            with pytest.raises(InputError):
                await session.put({name: 1})
        with pytest.raises(InputError, match="there is no variable good"):
            await session.take(["good"])
        await session.execute("import json as module")
        with pytest.raises(InputError, match=r"module cannot be taken: a module"):
            await session.take(["module"])
    with pytest.raises(UsageError, match="closed"):
        await session.put({"n": 1})


async def test_a_level_without_packages_takes_a_text_that_speaks_of_imports(tmp_path):
    """What needs an import itself is refused."""
    ran = []

    async def execute(source, _names):
        ran.append(source)
        return CellResult(status="ok")

    where = {"folder": tmp_path, "level": "interpreter", "after": 0}
    await Exchange().put({"word": "important"}, execute, **where)
    assert len(ran) == 1
    with pytest.raises(InputError, match=r"^day cannot be passed in: .*has no packages"):
        await Exchange().put({"word": "from", "day": date(2026, 5, 1)}, execute, **where)
    assert len(ran) == 1


async def test_the_model_is_told_what_changed_on_both_sides(tmp_path):
    """Type, columns and first rows at first; then that the user's change replaced the agent's."""
    long = pd.DataFrame({"secret": range(1000, 2000)})
    model = script(tmp_path, "long['new'] = 1", "final_answer(1)", "final_answer(long.shape)")
    async with Session(kernel=FakeKernel, model=model, out=tmp_path / "out") as session:
        (first,) = await session.put({"long": long})
        await session.run("First?", wanted=["result"])
        (again,) = await session.put({"long": long.assign(mine=2)})
        run = await session.run("Second?")
    told = given_text(first)
    assert "- long: DataFrame, 1,000 rows x 1 columns" in told
    assert "1002" in told
    assert "1003" not in told, "a preview, not the data"
    assert (again.again, again.undone) == (True, 1)
    assert "your change to it in step 1 is gone" in given_text(again)
    assert run.answer == [1000, 2] or "(1000, 2)" in run.text


async def test_sessions_that_begin_side_by_side_have_folders_of_their_own(tmp_path, monkeypatch):
    """Also in the same second with the same title."""
    monkeypatch.chdir(tmp_path)
    sessions = [Session(kernel=FakeKernel, model="offline", title="same") for _ in range(3)]
    for session in sessions:
        await session.start()
    try:
        assert len({session.out for session in sessions}) == 3
    finally:
        for session in sessions:
            await session.close()


def test_put_and_take_work_without_await(tmp_path):
    """As the session's other methods do."""
    with Session(kernel=FakeKernel, model="offline", out=tmp_path / "out") as session:
        session.put_sync({"n": 2})
        session.execute_sync("m = n * 21")
        assert session.take_sync(["m"]) == {"m": 42}


async def test_the_offline_analyst_reads_the_table_as_the_user_has_changed_it(tmp_path):
    async with Session(kernel=FakeKernel, model="offline", out=tmp_path / "out") as session:
        answers = []
        for table in (TABLE, pd.concat([TABLE, TABLE], ignore_index=True)):
            await session.put({"table": table})
            run = await session.run("How many rows?")
            answers.append((run.status, run.answer))
    assert answers == [(ExitStatus.ANSWERED, rows) for rows in (len(TABLE), 2 * len(TABLE))]
