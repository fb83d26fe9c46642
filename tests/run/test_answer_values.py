"""An answer is a value: each kind of it as ``run.value``, ``-o``, ``run.answer`` and ``--json``.

All come from one real kernel, in the cells of one conversation of ``%agent -o``.
"""

import asyncio
import dataclasses
import datetime as dt
import json
import re
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from kernel_agent_extension.conversation import Talk
from kernel_agent_extension.options import Request
from PIL import Image

from kernel_agent import FakeKernel, ScriptedModel, Session
from kernel_agent.cli.ask import _as_json
from kernel_agent.errors import KernelDied
from kernel_agent.session import LoopThread

FIRST = """\
import datetime, decimal, fractions, threading
import matplotlib.pyplot as plt, numpy as np, pandas as pd
from PIL import Image
sales = pd.DataFrame({
    "region": pd.Categorical(["North", "South", "North"]),
    "month": pd.to_datetime(["2025-01-01", "2025-02-01", "2025-02-01"]),
    "sold": [1.5, None, 1200.0],
})
figure, axes = plt.subplots(figsize=(4, 2))
axes.set_title("Sold")
"""
MONTHS = pd.to_datetime(["2025-01-01", "2025-02-01", "2025-02-01"])
SALES = pd.DataFrame(
    {
        "region": pd.Categorical(["North", "South", "North"]),
        "month": MONTHS,
        "sold": [1.5, None, 1200.0],
    }
)
BY_REGION = SALES.groupby("region", observed=True)
WIDE = SALES.assign(month=["Jan", "Feb", "Feb"], region=["North", "South", "North"]).pivot_table(
    index="region", columns="month", values="sold"
)
RECORDS = [
    {"region": "North", "month": "2025-01-01T00:00:00", "sold": 1.5},
    {"region": "South", "month": "2025-02-01T00:00:00", "sold": None},
    {"region": "North", "month": "2025-02-01T00:00:00", "sold": 1200.0},
]
LONG = pd.DataFrame({"n": range(1200), "half": np.arange(1200) / 2})


@dataclasses.dataclass(frozen=True)
class Kind:
    """One kind of answer: the code that gives it, and what is to come of it."""

    source: str
    value: object
    answer: object
    text: str
    instead: str = ""


PICTURE = (400, 200)  # pixels of one that is to come
KINDS = {
    "small table": Kind(
        "sales",
        SALES,
        RECORDS,
        "region  month          sold\n"
        "North   2025-01-01      1.5\n"
        "South   2025-02-01        —\n"
        "North   2025-02-01  1,200.0",
    ),
    "long table": Kind(
        "pd.DataFrame({'n': range(1200), 'half': np.arange(1200) / 2})",
        LONG,
        {
            "type": "DataFrame",
            "length": 1200,
            "first": [{"n": n, "half": n / 2} for n in range(200)],
        },
        "(1,200 rows, 2 columns; the first 20 shown)",
    ),
    "pivot": Kind(
        "sales.assign(month=['Jan', 'Feb', 'Feb'], region=['North', 'South', 'North'])"
        ".pivot_table(index='region', columns='month', values='sold')",
        WIDE,
        [{"region": "North", "Feb": 1200.0, "Jan": 1.5}],
        "region    Feb  Jan\nNorth   1,200  1.5",
    ),
    "series": Kind(
        "sales.groupby('region', observed=True).sold.sum()",
        BY_REGION.sold.sum(),
        {"North": 1201.5, "South": 0.0},
        "North  1,201.5\nSouth      0.0",
    ),
    "figure": Kind(
        "figure",
        PICTURE,
        'a figure "Sold", 400 by 200 pixels',
        'a figure "Sold", 400 by 200 pixels',
    ),
    "axes": Kind(
        "axes", PICTURE, 'a figure "Sold", 400 by 200 pixels', 'a figure "Sold", 400 by 200 pixels'
    ),
    "picture": Kind(
        "Image.new('RGB', (400, 200), 'red')",
        PICTURE,
        "a picture of 400 by 200 pixels",
        "a picture of 400 by 200 pixels",
    ),
    "numpy number": Kind(
        "np.float64(91219.93250000001)", 91219.93250000001, 91219.93250000001, "91,219.93"
    ),
    "array": Kind(
        "np.arange(6, dtype='<i2').reshape(2, 3)",
        np.arange(6, dtype="<i2").reshape(2, 3),
        [[0, 1, 2], [3, 4, 5]],
        "0  1  2\n3  4  5",
    ),
    "tuple": Kind("(1, 'a')", (1, "a"), [1, "a"], "1, a"),
    "set": Kind("{3, 1, 2}", {1, 2, 3}, [1, 2, 3], "1, 2, 3"),
    "moment": Kind(
        "pd.Timestamp('2025-01-01')", dt.datetime(2025, 1, 1), "2025-01-01T00:00:00", "2025-01-01"
    ),
    "date": Kind("datetime.date(2025, 1, 1)", dt.date(2025, 1, 1), "2025-01-01", "2025-01-01"),
    "dict with dates": Kind(
        "{'from': datetime.date(2025, 1, 1), 'sold': np.int64(12345)}",
        {"from": dt.date(2025, 1, 1), "sold": 12345},
        {"from": "2025-01-01", "sold": 12345},
        "from  2025-01-01\nsold  12,345",
    ),
    "nothing": Kind("None", None, None, "No value"),
    "object": Kind(
        "threading.Lock()",
        "an object of type lock",
        "an object of type lock",
        "an object of type lock",
        "a text, because the answer cannot be taken: a lock cannot be sent; text, numbers, lists, "
        "dicts, tables can",
    ),
    "markdown": Kind(
        "'# Result\\n\\n**North** sold most.'",
        "# Result\n\n**North** sold most.",
        "# Result\n\n**North** sold most.",
        "# Result\n\n**North** sold most.",
    ),
    "truth": Kind("True", True, True, "Yes"),
    "decimal": Kind("decimal.Decimal('1.10')", Decimal("1.10"), 1.1, "1.10"),
    "fraction": Kind("fractions.Fraction(1, 4)", Fraction(1, 4), 0.25, "0.25"),
    "not a number": Kind("float('nan')", float("nan"), "NaN", "not a number"),
}


def script(folder, *cells):
    """Write replies with one cell each; return the name of the model that plays them back."""
    replies = [{"content": f"Thinking.\n```python\n{cell}\n```"} for cell in cells]
    path = folder / "script.jsonl"
    path.write_text("".join(json.dumps(reply) + "\n" for reply in replies))
    return f"scripted:{path}"


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """Return each kind's run, what ``-o total`` got, and what was said."""
    folder, loop = tmp_path_factory.mktemp("answers"), LoopThread()
    cells = [f"final_answer({kind.source})" for kind in KINDS.values()]
    cells[0] = FIRST + cells[0]
    settings = {"model": script(folder, *cells)}
    request = Request(task="Which?", wanted=("total",), settings=settings)
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        talk = Talk(request, once=False)
    try:
        for name in KINDS:
            told, names = [], {}
            run = loop.result(talk.answer(request, {}, tell=told.append, names=names))
            said = [event.text for event in told if hasattr(event, "text")]
            found[name] = run, names.get("total"), said[-1]
        yield found
    finally:
        loop.result(talk.close())
        loop.end()


def is_same(value, wanted):
    """Whether a value is the one that is wanted, with its type, its index and its dtypes."""
    if isinstance(wanted, pd.DataFrame):
        pd.testing.assert_frame_equal(value, wanted)
        return True
    if isinstance(wanted, pd.Series):
        pd.testing.assert_series_equal(value, wanted)
        return True
    if isinstance(wanted, np.ndarray):
        return value.dtype == wanted.dtype and np.array_equal(value, wanted)
    if wanted is PICTURE:
        return isinstance(value, Image.Image) and value.size == PICTURE
    return type(value) is type(wanted) and repr(value) == repr(wanted)


@pytest.mark.parametrize("name", KINDS)
def test_the_value_of_a_run_is_the_answer_itself(answers, name):
    run, _, _ = answers[name]
    assert run.status == "answered"
    assert is_same(run.value, KINDS[name].value)
    assert run.instead == KINDS[name].instead


@pytest.mark.parametrize("name", KINDS)
def test_a_name_behind_o_that_the_code_did_not_set_gets_the_answer_itself(answers, name):
    _, taken, said = answers[name]
    assert is_same(taken, KINDS[name].value)
    what = KINDS[name].instead or "the answer"
    assert said == f"The code set no total: it is {what}."


@pytest.mark.parametrize("name", KINDS)
def test_the_answer_is_plain_json_and_never_a_repr(answers, name):
    run, _, _ = answers[name]
    assert run.answer == KINDS[name].answer
    assert type(run.answer) is type(KINDS[name].answer)
    assert not re.search(r"0x[0-9a-f]{6}|np\.|Timestamp\(|<\w", json.dumps(run.answer))


@pytest.mark.parametrize("name", KINDS)
def test_the_json_of_a_run_has_the_same_answer_and_a_text_for_people(answers, name):
    run, _, _ = answers[name]
    printed = json.loads(json.dumps(_as_json(run), allow_nan=False))
    assert printed["answer"] == KINDS[name].answer
    assert printed["text"].endswith(KINDS[name].text)
    assert name == "long table" or printed["text"] == KINDS[name].text


@pytest.mark.long
async def test_five_million_rows_are_the_value_and_not_a_cut_text(tmp_path):
    source = "pd.DataFrame({'n': np.arange(5_000_000), 'half': np.arange(5_000_000) / 2})"
    cell = f"import numpy as np, pandas as pd\nfinal_answer({source})"
    async with Session(model=script(tmp_path, cell), out=tmp_path / "out") as session:
        run = await session.run("All of them")
    assert run.instead == ""
    assert run.value.shape == (5_000_000, 2)
    assert [str(dtype) for dtype in run.value.dtypes] == ["int64", "float64"]
    assert run.value.half.iloc[-1] == 2499999.5
    assert (run.answer["length"], len(run.answer["first"])) == (5_000_000, 200)
    assert run.text.endswith("(5,000,000 rows, 2 columns; the first 20 shown)")


async def test_an_answer_that_is_too_large_is_not_taken_and_a_line_says_so(tmp_path):
    cell = (
        "import sys, numpy as np\n"
        "sys.modules['_kernel_agent_inside.transfer'].MAX_CHARS = 1000\n"
        "final_answer(np.zeros(1000))"
    )
    async with Session(model=script(tmp_path, cell), out=tmp_path / "out") as session:
        run = await session.run("All of them")
    assert run.value == run.answer == [0.0] * 1000
    assert run.instead.startswith("a list, because the answer cannot be taken: it is too large: ")


@pytest.mark.parametrize(
    ("forged", "reason"),
    [
        (
            {"$": "array", "dtype": "|O", "shape": [1], "base64": "gASVCg=="},
            "an array of something",
        ),
        ({"$": "image", "png": "AAAA"}, "not a value of kind 'image'"),
        ({"$": "os.system", "text": "x"}, "not a value of kind"),
    ],
)
async def test_what_a_hostile_kernel_gives_as_the_answer_is_checked(tmp_path, forged, reason):
    cell = (
        "import sys\n"
        "taking = sys.modules['_kernel_agent_inside.transfer']\n"
        f"taking.values.encode = lambda value, depth=0: {forged!r}\n"
        "final_answer([1])"
    )
    async with Session(model=script(tmp_path, cell), out=tmp_path / "out") as session:
        run = await session.run("Which?")
    assert run.value == run.answer == [1]
    assert "cannot be taken: " in run.instead
    assert reason in run.instead


async def test_an_answer_outlives_its_kernel_and_the_next_answer(tmp_path):
    cells = ["final_answer({1: (2,)})", "final_answer({3})"]
    async with Session(model=script(tmp_path, *cells), out=tmp_path / "out") as session:
        first, second = await session.run("One"), await session.run("Two")
    assert (first.value, second.value) == ({1: (2,)}, {3})


async def test_a_run_that_is_told_so_takes_nothing_out_of_its_kernel(tmp_path):
    cells = ["final_answer((1, 2))", "final_answer('text')"]
    async with Session(model=script(tmp_path, *cells), out=tmp_path / "out") as session:
        first = await session.run("One", typed=False)
        second = await session.run("Two", typed=False)
    assert first.value == [1, 2]
    assert first.instead == "a list, because the run was told not to take the answer itself"
    assert (second.value, second.instead) == ("text", "")


class Silent(FakeKernel):
    """Its answers cannot be had: it ends with the cell that gave one, or never says it."""

    asked = 0

    async def take_answer(self):
        """Count, and wait for ever or fail."""
        Silent.asked += 1
        if Silent.asked > 1:
            await asyncio.Event().wait()
        raise KernelDied("the kernel is gone: it was ended")


async def test_a_kernel_that_does_not_give_its_answer_costs_the_type_alone(tmp_path):
    """A plain one is not asked for; a stop ends the wait for another."""
    Silent.asked = 0
    texts = ("5", "(1, 2)", "(3, 4)")
    model = ScriptedModel([f"```python\nfinal_answer({text})\n```" for text in texts])
    async with Session(model=model, kernel=Silent, out=tmp_path / "out") as session:
        plain = await session.run("One")
        assert (plain.value, Silent.asked) == (5, 0)
        gone = await session.run("Two")
        running = asyncio.ensure_future(session.run("Three"))
        while Silent.asked < 2:
            await asyncio.sleep(0.01)
        session.stop()
        stopped = await running
    assert (gone.status, gone.value) == ("answered", [1, 2])
    assert gone.instead == "a list, because the kernel is gone: it was ended"
    assert (stopped.status, stopped.value) == ("answered", [3, 4])
    assert stopped.instead == "a list, because the run was stopped before it was taken"


def test_a_run_that_was_not_answered_has_no_value(tmp_path):
    model = ScriptedModel(["```python\nx = 1\n```"])
    with Session(model=model, kernel=FakeKernel, out=tmp_path / "out") as session:
        run = session.run_sync("Which?")
    assert (run.value, run.answer, run.instead) == (None, None, "")
