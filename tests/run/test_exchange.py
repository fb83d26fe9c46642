"""Variables put into a session's kernel and taken out of it."""

import asyncio
import datetime as dt
import decimal
import json

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from PIL import Image

from kernel_agent import Session
from kernel_agent.agent.task import given_text
from kernel_agent.errors import InputError, UsageError
from kernel_agent.inkernel import values
from kernel_agent.kernel import KernelSession, setting
from kernel_agent.records.endings import ExitStatus
from kernel_agent.session.verification import verify

TABLE = pd.DataFrame(
    {"month": ["May", "June"], "sold": [3.5, None], "when": pd.to_datetime(["2026-05-01"] * 2)},
    index=pd.Index(["a", "b"], name="row"),
)
PLAIN = {
    "n": 3,
    "x": float("inf"),
    "text": 'it\'s "so"\n',
    "nothing": None,
    "pair": (1, dt.date(2020, 1, 2)),
    "moment": dt.datetime(2020, 1, 2, 3, tzinfo=dt.UTC),
    "price": decimal.Decimal("1.10"),
    "keys": {1: "a", "$": {2}},
    "many": list(range(3000)),
    "raw": b"\x00\xff",
}


def script(folder, *cells):
    """Write replies with one cell each; return the name of the model that plays them back."""
    replies = [{"content": f"Thinking.\n```python\n{cell}\n```"} for cell in cells]
    path = folder / "script.jsonl"
    path.write_text("".join(json.dumps(reply) + "\n" for reply in replies))
    return f"scripted:{path}"


async def test_values_come_back_as_they_went_in_and_the_notebook_has_them(tmp_path):
    """Each in its type; run again, the notebook gives the same from the files beside it."""
    array = np.arange(6, dtype="<i2").reshape(2, 3)
    named = TABLE["sold"].rename("sold")
    model = script(tmp_path, "print(table, array, n, pair, len(many))\nfinal_answer(n + 1)")
    async with Session(model=model, out=tmp_path / "out") as session:
        given = await session.put({"table": TABLE, "named": named, "array": array, **PLAIN})
        assert [g.shape for g in given[:3]] == ["2 rows x 3 columns", "2 rows", "2 x 3"]
        back = await session.take(["table", "named", "array", *PLAIN])
        run = await session.run("What comes after n?")
        changed = await session.execute("open('data/table.feather', 'w')")
    pd.testing.assert_frame_equal(back.pop("table"), TABLE)
    pd.testing.assert_series_equal(back.pop("named"), named)
    assert back["array"].dtype == array.dtype
    assert np.array_equal(back.pop("array"), array)
    assert back == PLAIN
    assert run.answer == 4
    assert changed.error is not None, "cells cannot change what the notebook will load"
    report = await asyncio.to_thread(verify, run.notebook)
    assert report.reproduces, report


async def test_a_figure_is_taken_as_a_picture_and_a_picture_can_be_put(tmp_path):
    """Nothing that could act in a browser comes out."""
    figure = Figure(figsize=(2, 1))
    async with Session(model="offline", out=tmp_path / "out") as session:
        await session.put({"seen": Image.new("RGB", (4, 3), "red"), "drawn": figure})
        await session.execute(
            "import matplotlib.pyplot as plt\nsize = seen.size, drawn.size\nfig = plt.figure()"
        )
        back = await session.take(["size", "fig"])
    assert back["size"] == ((4, 3), (200, 100))
    assert isinstance(back["fig"], Image.Image)


async def test_what_holds_plain_values_under_a_type_of_its_own_is_put_as_those(tmp_path):
    async with Session(model="offline", out=tmp_path / "out") as session:
        given = await session.put({"days": range(3), "columns": TABLE.columns})
        back = await session.take(["days", "columns"])
    assert [g.type for g in given] == ["list", "list"]
    assert back == {"days": [0, 1, 2], "columns": list(TABLE.columns)}


async def test_what_has_no_form_is_one_line_that_names_it(tmp_path):
    """In both directions; nothing of such a call is set."""
    async with Session(model="offline", out=tmp_path / "out") as session:
        for value, reason in (
            (object(), "a object"),
            ({"a": TABLE}, "DataFrame within it"),
            (pd.DataFrame([[1, 2]], columns=["a", "a"]), "several columns of one name"),
            (pd.DataFrame({"a": [1, "x"]}), "Arrow cannot hold"),
            (pd.DataFrame({"a": pd.cut([1, 2], 2)}), "column a are of type pandas.interval"),
            (pd.DataFrame({"b": [1, 2]}, index=pd.cut([1, 2], 2)), "pandas.interval, .*astype"),
            (pd.DataFrame({"a": [1], 2: [3]}), "mixed type"),
            (np.array([object()]), "array of object"),
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


async def test_what_a_hostile_kernel_gives_is_checked(tmp_path):
    """A form that claims to be something it is not is refused, and nothing is unpickled."""
    claims = "\n".join(
        f"taking.values.encode = lambda value, depth=0: {claim!r}"
        for claim in ({"$": "array", "dtype": "|O", "shape": [1], "base64": "gASVCg=="},)
    )
    async with Session(model="offline", out=tmp_path / "out") as session:
        await session.execute(
            f"import sys\ntaking = sys.modules['_kernel_agent_inside.transfer']\n{claims}\nx = 1"
        )
        with pytest.raises(InputError, match=r"x cannot be taken: .*an array of something else"):
            await session.take(["x"])
        await session.execute("taking.Taken._repr_mimebundle_ = lambda self, **_: {'text/html': 1}")
        with pytest.raises(Exception, match="did not give the variables"):
            await session.take(["x"])


async def test_the_model_is_told_what_changed_on_both_sides(tmp_path):
    """Type, columns and first rows at first; then that the user's change replaced the agent's."""
    long = pd.DataFrame({"secret": range(1000, 2000)})
    model = script(tmp_path, "long['new'] = 1", "final_answer(1)", "final_answer(long.shape)")
    async with Session(model=model, out=tmp_path / "out") as session:
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


async def test_variables_are_set_again_when_the_kernel_was_lost(tmp_path):
    """From what was kept of them."""
    async with Session(model="offline", out=tmp_path / "out") as session:
        await session.put({"table": TABLE, "n": 3})
        await session.execute("table = None; import os; os.kill(os.getpid(), 9)")
        back = await session.take(["table", "n"])
    pd.testing.assert_frame_equal(back["table"], TABLE)
    assert back["n"] == 3


async def test_a_kernel_without_a_common_folder_is_sent_the_values(tmp_path):
    """In pieces, over its own connection."""
    async with KernelSession(cwd=tmp_path) as kernel:
        text = json.dumps(values.encode({"table": TABLE, "long": "x" * 2_500_000}))
        for cell in setting("both", text):
            assert (await kernel.execute(cell, step=0)).ok
        result = await kernel.execute("len(both['long']), both['table'].shape")
        found = await kernel.get(["both"])
        with pytest.raises(InputError, match="there is no variable missing"):
            await kernel.get(["missing"])
    assert result.outputs[0]["data"]["text/plain"] == "(2500000, (2, 3))"
    assert found["both"]["long"] == "x" * 2_500_000


async def test_sessions_that_begin_side_by_side_have_folders_of_their_own(tmp_path, monkeypatch):
    """Also in the same second with the same title."""
    monkeypatch.chdir(tmp_path)
    sessions = [Session(model="offline", title="same") for _ in range(3)]
    for session in sessions:
        await session.start()
    try:
        assert len({session.out for session in sessions}) == 3
    finally:
        for session in sessions:
            await session.close()


def test_put_and_take_work_without_await(tmp_path):
    """As the session's other methods do."""
    with Session(model="offline", out=tmp_path / "out") as session:
        session.put_sync({"n": 2})
        session.execute_sync("m = n * 21")
        assert session.take_sync(["m"]) == {"m": 42}


async def test_the_offline_analyst_reads_the_table_as_the_user_has_changed_it(tmp_path):
    async with Session(model="offline", out=tmp_path / "out") as session:
        answers = []
        for table in (TABLE, pd.concat([TABLE, TABLE], ignore_index=True)):
            await session.put({"table": table})
            run = await session.run("How many rows?")
            answers.append((run.status, run.answer))
    assert answers == [
        (ExitStatus.ANSWERED, f"There are {rows} rows.") for rows in (len(TABLE), 2 * len(TABLE))
    ]
