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
from kernel_agent.errors import InputError
from kernel_agent.inkernel import values
from kernel_agent.kernel import KernelSession, setting
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


@pytest.mark.long
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
