"""What a model is shown of a cell."""

from __future__ import annotations

import base64
import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as Pillow

from kernel_agent.agent.observation import NOTHING, VALUE_MIME, name_left_out, observe
from kernel_agent.notebook.tracebacks import cut_native, cut_traceback
from kernel_agent.records.action import Code
from kernel_agent.records.cell import Answer, CellError, CellResult, Changes, OutputDict


def stream(text: Any, name: str = "stdout") -> OutputDict:
    return {"output_type": "stream", "name": name, "text": text}


def shown(data: dict[str, Any], kind: str = "display_data", **metadata: Any) -> OutputDict:
    return {"output_type": kind, "data": data, "metadata": metadata}


def seen(*outputs: OutputDict, **options: Any) -> str:
    return observe(CellResult(status="ok", outputs=outputs), step=7, **options).text


def png(width: int = 4, height: int = 3, mode: str = "RGB", kind: str = "PNG") -> str:
    buffer = io.BytesIO()
    Pillow.new(mode, (width, height)).save(buffer, format=kind)
    return base64.b64encode(buffer.getvalue()).decode()


TABLE = {
    "kind": "DataFrame",
    "shape": [344, 3],
    "dtypes": [["species", "object"], ["mass", "float64"], ["island", "object"]],
    "preview": "  species  mass\n0  Adelie  3750",
}


# --- text ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "left"),
    [
        ("\x1b[31mred\x1b[0m and \x1b[1;38;5;4mbold\x1b[m", "red and bold"),
        ("10%|#   |\r50%|##  |\r100%|####|\n", "100%|####|"),
        ("long first state\rshort", "shortfirst state"),
        ("windows\r\nlines\r\n", "windows\nlines"),
        ("spin /\b-\b|\bdone", "spin done"),
        ("\x1b]0;title\x07shown\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "shownlink"),
        ("\x1b]52;c;never closed\nnext", "next"),
        ("nul \x00bell \x07half \ud800", "nul bell half �"),
        ("\x1b[2Jcleared\x1b(B\x1b", "cleared"),
    ],
)
def test_a_stream_is_shown_as_a_terminal_would_leave_it(written: str, left: str) -> None:
    assert seen(stream(written)) == left


def test_outputs_come_in_order_with_pieces_joined_and_stderr_marked() -> None:
    text = seen(
        stream("a"), stream("b\n"), stream("careful\n", "stderr"), stream(["c\n", "d\n"]),
        shown({"text/plain": "42"}, "execute_result"),
    )  # fmt: skip
    assert text == "ab\n[stderr]\ncareful\n[end of stderr]\nc\nd\n42"


def test_a_cell_that_shows_nothing_says_so() -> None:
    assert seen() == seen(stream("\n"), stream("")) == NOTHING


def test_the_answer_is_called_the_answer() -> None:
    ours = {"kernel_agent": {"role": "answer"}}
    assert seen(shown({"text/plain": "42"}, **ours)) == "Final answer: 42"
    result = CellResult(status="ok", answer=Answer(text="43"))
    assert observe(result, step=1).text == "Final answer: 43"


def test_an_answer_that_was_displayed_is_said_once() -> None:
    """Whatever the cell displayed before it or after it."""
    answer = shown({"text/plain": "42"}, kernel_agent={"role": "answer"})
    other = shown({"text/plain": "7"})
    for outputs in ((answer,), (other, answer), (answer, other)):
        result = CellResult(status="ok", outputs=outputs, answer=Answer(text="42"))
        assert observe(result, step=1).text.count("Final answer: 42") == 1


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"text/plain": "plain", "text/html": "<b>html</b>"}, "plain"),
        ({"text/html": "<p>a &lt; b</p><script>x()</script><p>c</p>"}, "a < b\nc"),
        (
            {
                "text/plain": "<IPython.core.display.HTML object>",
                "text/html": "<table><tr><td>1</td><td>2</td></tr></table>",
            },
            "1 2",
        ),
        ({"text/latex": "$x^2$"}, "$x^2$"),
        ({"application/json": {"a": [1, "ü"]}}, '{"a": [1, "ü"]}'),
        ({"image/svg+xml": "<svg/>"}, "[shown: image/svg+xml]"),
        ({"bad\x1b[0m type\n": "x"}, "[shown: something without a readable form]"),
        ({}, "[shown: something without a readable form]"),
        ({"text/plain": 7}, "[shown: something without a readable form]"),
    ],
)
def test_a_display_is_shown_by_its_best_text(data: dict[str, Any], text: str) -> None:
    assert seen(shown(data)) == text


# --- tables and arrays ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "first_lines"),
    [
        (TABLE, "DataFrame: 344 rows x 3 columns\nobject: species, island; float64: mass\n"),
        (
            {"kind": "Series", "shape": [1], "dtypes": [["mass", "float64"]], "preview": "0 1.0"},
            "Series: 1 value\nfloat64: mass\n0 1.0",
        ),
        (
            {"kind": "ndarray", "shape": [3, 4], "dtypes": [["", "int64"]], "preview": "array"},
            "ndarray: shape 3 x 4\nint64\narray",
        ),
        ({**TABLE, "shape": [0, 3]}, "DataFrame: 0 rows x 3 columns\n"),
    ],
)
def test_a_table_is_shown_as_shape_types_and_preview(value: Any, first_lines: str) -> None:
    assert seen(shown({VALUE_MIME: value, "text/plain": "long text"})).startswith(first_lines)


@pytest.mark.parametrize(
    "value",
    [
        "text", None, [], {**TABLE, "kind": "Thing"}, {**TABLE, "shape": [-1, 2]},
        {**TABLE, "shape": ["1", 2]}, {**TABLE, "shape": [True, 2]}, {**TABLE, "preview": ["x"]},
        {**TABLE, "shape": [1] * 50}, {**TABLE, "shape": None}, {**TABLE, "shape": [2**70]},
    ],
)  # fmt: skip
def test_a_description_that_is_not_what_it_says_falls_back_to_the_text(value: Any) -> None:
    assert seen(shown({VALUE_MIME: value, "text/plain": "the text"})) == "the text"


def test_a_wide_table_lists_some_columns_and_says_that_there_are_more() -> None:
    dtypes = [[f"column_{i}", "float64"] for i in range(200)]
    wide = {**TABLE, "shape": [5, 4000], "dtypes": dtypes}
    line = seen(shown({VALUE_MIME: wide})).split("\n")[1]
    assert line.startswith("float64: column_0, column_1, ")
    assert line.endswith(f"; … {4000 - line.count('column_')} more columns (df.dtypes has all)")
    assert len(line) < 700
    many = {**wide, "dtypes": [[f"c{i}", f"category_{i:03}"] for i in range(200)]}
    line = seen(shown({VALUE_MIME: many})).split("\n")[1]
    assert line.startswith("category_000: c0; category_001: c1; ")
    assert line.endswith(f"; … {4000 - line.count('category_')} more columns (df.dtypes has all)")
    assert len(line) < 700


# --- pictures ------------------------------------------------------------------------------


def test_a_figure_is_a_picture_and_a_line() -> None:
    found = observe(
        CellResult(
            status="ok",
            outputs=(
                shown({"image/png": png(1600, 800), "text/plain": "<Figure size 1600x800>"}),
                shown({"image/jpeg": png(40, 30, kind="JPEG")}),
            ),
        ),
        step=1,
    )
    assert found.text == ("[figure 1 of step 1, PNG 1600x800]\n[figure 2 of step 1, JPEG 40x30]")
    assert [(i.media_type, i.width, i.height) for i in found.images] == [
        ("image/png", 1024, 512), ("image/jpeg", 40, 30),
    ]  # fmt: skip
    for image in found.images:
        opened = Pillow.open(io.BytesIO(base64.b64decode(image.data)))
        assert opened.size == (image.width, image.height)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "I;16", "RGB"])
def test_every_kind_of_png_is_passed_on(mode: str) -> None:
    found = observe(
        CellResult(status="ok", outputs=(shown({"image/png": png(mode=mode)}),)), step=1
    )
    assert len(found.images) == 1


def test_only_so_many_pictures_are_passed_on() -> None:
    outputs = tuple(shown({"image/png": png()}) for _ in range(3))
    found = observe(CellResult(status="ok", outputs=outputs), step=1, max_images=2)
    assert len(found.images) == 2
    assert found.text.endswith("step 1, PNG 4x3, not shown: a cell shows at most 2 pictures]")


def bomb() -> str:
    """A PNG whose header promises 50,000 x 50,000 pixels."""
    raw = bytearray(base64.b64decode(png()))
    raw[16:24] = (50_000).to_bytes(4, "big") * 2
    import zlib

    raw[29:33] = zlib.crc32(raw[12:29]).to_bytes(4, "big")
    return base64.b64encode(raw).decode()


@pytest.mark.parametrize(
    ("data", "line"),
    [
        ("not base64!", "[figure 1 of step 1, not a readable PNG]"),
        (base64.b64encode(b"GIF89a...").decode(), "[figure 1 of step 1, not a readable PNG]"),
        (png()[:60], "[figure 1 of step 1, not a readable PNG]"),
        (png(kind="JPEG"), "[figure 1 of step 1, not a readable PNG]"),
        (None, "[figure 1 of step 1, not a readable PNG]"),
        (bomb(), "[figure 1 of step 1, PNG of 50000x50000, too large to look at]"),
    ],
)
def test_a_picture_that_cannot_be_looked_at_is_named(data: Any, line: str) -> None:
    found = observe(CellResult(status="ok", outputs=(shown({"image/png": data}),)), step=1)
    assert (found.text, found.images) == (line, ())


# --- endings and errors --------------------------------------------------------------------


@pytest.fixture(scope="module")
def shell() -> Any:
    """A real IPython shell that keeps each error as the kernel would send it."""
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    class Shell(InteractiveShell):
        caught: CellError | None = None

        def _showtraceback(self, etype: type, evalue: BaseException, stb: list[str]) -> None:
            self.caught = CellError(ename=etype.__name__, evalue=str(evalue), traceback=tuple(stb))

    yield Shell.instance(config=Config({"HistoryManager": {"enabled": False}}))
    Shell.clear_instance()


def raised(shell: Any, source: str) -> str:
    shell.caught = None
    shell.run_cell(source, store_history=True)
    assert shell.caught is not None
    return observe(CellResult(status="error", error=shell.caught), step=1).text


def test_a_traceback_names_the_lines_of_every_cell_it_came_through(shell: Any) -> None:
    shell.run_cell("def inner(x):\n    y = x\n    return y / 0", store_history=True)
    defined = shell.execution_count - 1
    text = raised(shell, "a = 1\ninner(a)")
    assert text == (
        f"Cell In[{defined + 1}], line 2\n    inner(a)\n"
        f"Cell In[{defined}], line 3, in inner(x)\n    return y / 0\n"
        "ZeroDivisionError: division by zero"
    )


@pytest.mark.parametrize(
    "source",
    [
        "x = 1\nrows = [\n    1 / n\n    for n in (1, 0)\n]",
        "x = 1\nrows = {\n    1 / n\n    for n in (1, 0)\n}",
        "x = 1\nrows = list(\n    1 / n\n    for n in (1, 0)\n)",
    ],
)
def test_the_line_of_a_comprehension_is_its_own(shell: Any, source: str) -> None:
    lines = raised(shell, source).split("\n")
    shown = [lines[at + 1] for at, line in enumerate(lines) if ", line 3" in line]
    assert all(line == "    1 / n" for line in shown)
    assert not any("x = 1" in line for line in lines)


def test_library_frames_are_counted_not_shown(shell: Any) -> None:
    text = raised(shell, "import json\njson.loads('{bad}')")
    lines = text.split("\n")
    assert lines[1:3] == ["    json.loads('{bad}')", "(3 library frames left out)"]
    assert lines[3].startswith("JSONDecodeError: Expecting property name")


PANDAS = (
    "-" * 75,
    "KeyError                                  Traceback (most recent call last)",
    "File /opt/site-packages/pandas/core/base.py:3816, in Index.get_loc(self)\n-> 3816   x\n",
    "File pandas/_libs/index.pyx:172, in IndexEngine.get_loc()\n--> 172 'Could not get source'\n",
    "KeyError: 'nope'",
    "\nThe above exception was the direct cause of the following exception:\n",
    "KeyError                                  Traceback (most recent call last)",
    "Cell In[1], line 3\n      2 df = make()\n----> 3 df['nope']\n",
    "File ~/lib/python3.11/site-packages/pandas/frame.py:4330, in __getitem__(k)\n-> 4330  x\n",
    "\x1b[31mKeyError\x1b[39m: 'nope'",
)


def test_deep_pandas_frames_leave_the_users_line_and_the_key() -> None:
    cut = cut_traceback(CellError(ename="KeyError", evalue="'nope'", traceback=PANDAS))
    assert cut.before == (
        "(2 library frames left out)\nKeyError: 'nope'\n\n"
        "The above exception was the direct cause of the following exception:\n\n"
        "Cell In[1], line 3\n    df['nope']\n(1 library frame left out)"
    )
    assert cut.message == "KeyError: 'nope'"


def test_chained_exceptions_are_kept(shell: Any) -> None:
    source = "try:\n    int('x')\nexcept ValueError as e:\n    raise RuntimeError('outer') from e"
    text = raised(shell, source)
    assert "ValueError: invalid literal for int() with base 10: 'x'" in text
    assert "direct cause of the following exception" in text
    assert text.endswith("RuntimeError: outer")


def test_a_syntax_error_shows_the_line_and_the_caret(shell: Any) -> None:
    lines = raised(shell, "x = 1\nfor i in range(3)\n    pass").split("\n")
    assert lines[0].endswith("line 2")
    assert lines[1] == "    for i in range(3)"
    assert lines[2].strip() == "^"
    assert lines[3] == "SyntaxError: expected ':'"


def test_notes_belong_to_the_message(shell: Any) -> None:
    text = raised(shell, "e = ValueError('said')\ne.add_note('and noted')\nraise e")
    assert text.endswith("ValueError: said\nand noted")


def frame(line: int, where: str, source: str) -> str:
    return f"Cell In[1], line {line}, in {where}\n      1 before\n----> {line} {source}\n"


def test_endless_recursion_is_one_frame_and_a_count() -> None:
    trace = (*[frame(2, "f(n)", "    return f(n)")] * 970, "RecursionError: too deep")
    cut = cut_traceback(CellError(ename="RecursionError", evalue="too deep", traceback=trace))
    assert cut.before == (
        "Cell In[1], line 2, in f(n)\n    return f(n)\n(the frame above 969 more times)"
    )
    assert cut.message == "RecursionError: too deep"


def test_mutual_recursion_keeps_the_first_and_the_last_frames() -> None:
    pair = [frame(2, "f(n)", "    return g(n)"), frame(4, "g(n)", "    return f(n)")]
    trace = (*pair * 485, "RecursionError: too deep")
    cut = cut_traceback(CellError(ename="RecursionError", evalue="too deep", traceback=trace))
    assert "(959 frames left out)" in cut.before
    assert cut.before.count("Cell In") == 11


GROUP = """\
  + Exception Group Traceback (most recent call last):
  |   File "/opt/venv/lib/python3.11/site-packages/IPython/core/interactiveshell.py", line 9, in x
  |     exec(code_obj, self.user_global_ns, self.user_ns)
  |   File "/tmp/ipykernel_5066/384851482.py", line 6, in <module>
  |     raise ExceptionGroup('many', [e, TypeError('b')])
  | ExceptionGroup: many (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | TypeError: b
    +------------------------------------
"""


def test_an_exception_group_keeps_its_members_and_names_the_cell() -> None:
    text = cut_native(GROUP)
    assert 'File "<cell>", line 6' in text
    assert "TypeError: b" in text
    assert "interactiveshell" not in text


def test_an_error_without_a_traceback_is_still_named() -> None:
    cut = cut_traceback(CellError(ename="UsageError", evalue="no such magic"))
    assert (cut.before, cut.message) == ("", "UsageError: no such magic")


@pytest.mark.parametrize(
    ("status", "error", "first"),
    [
        ("timeout", CellError(ename="KeyboardInterrupt", evalue=""), "The cell was interrupted af"),
        ("interrupted", None, "The cell was interrupted by the user. The variables that"),
        ("dead", CellError(ename="KernelDied", evalue="it was killed"), "The kernel ended (it was"),
    ],
)
def test_an_unusual_ending_is_said_first(status: Any, error: Any, first: str) -> None:
    outputs = (stream("so far"),)
    result = CellResult(
        status=status, outputs=outputs, error=error, seconds=30, changes=Changes(fresh=False)
    )
    lines = observe(result, step=1).text.split("\n")
    assert lines[0].startswith(first)
    assert lines[1] == "so far"


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (0, ": those after the one that failed did not run."),
        (1, ": call 1 failed, so calls 2 to 4 did not run."),
        (4, ": call 2 failed, so calls 3 to 4 did not run."),
        (6, ": call 3 failed, so call 4 did not run."),
        (7, ""),
    ],
)
def test_the_calls_after_the_one_that_failed_are_named(line: int, what: str) -> None:
    """They are joined into one cell; the traceback says which line of it failed."""
    traceback = (f"Cell In[3], line {line}\n",) if line else ()
    error = CellError(ename="KeyError", evalue="'a'", traceback=traceback)
    action = Code(source="f()\n" * 7, starts=(1, 3, 5, 7))
    told = name_left_out(action, CellResult(status="error", error=error))
    assert told == (f"Your reply had 4 calls, which run as one cell{what}" if what else "")


@pytest.mark.parametrize("status", ["timeout", "interrupted"])
def test_variables_of_which_the_kernel_says_nothing_are_not_said_to_be_kept(status: Any) -> None:
    """The interpreter goes back to the state before the cell."""
    result = CellResult(status=status, seconds=30)
    assert "kept" not in observe(result, step=1).text


# --- the bound -----------------------------------------------------------------------------


def test_long_text_keeps_both_ends_and_says_where_the_rest_is() -> None:
    lines = "".join(f"line {i}\n" for i in range(20_000))
    found = observe(CellResult(status="ok", outputs=(stream(lines),)), step=7)
    assert found.shortened
    assert len(found.text) <= 8000
    assert found.text.startswith("line 0\nline 1\n")
    assert found.text.endswith("line 19998\nline 19999")
    assert "characters left out; outputs[7] holds the full text …\n" in found.text


def test_what_is_a_fifth_too_long_stays_whole_and_what_is_longer_does_not() -> None:
    """Several outputs as well as one, with the line ends between them."""
    for size in (597, 598):
        text = seen(stream("x" * size), shown({"text/plain": "y" * size}), max_chars=1000)
        assert (text == "x" * size + "\n" + "y" * size) is (size == 597)
    for size in (1195, 1196):
        assert (seen(stream("x" * size), max_chars=1000) == "x" * size) is (size == 1195)


def test_of_very_many_outputs_as_many_are_shown_as_have_room_to_say_something() -> None:
    outputs = [shown({"text/plain": f"<{n}>" + "x" * 300}) for n in range(100)]
    text = seen(*outputs, max_chars=4000)
    assert "\n… 91 more outputs left out; outputs[7] holds the full text …\n" in text
    assert [n for n in range(100) if f"<{n}>" in text] == [0, 1, 2, 3, 4, 96, 97, 98, 99]


def test_a_table_that_is_too_long_keeps_its_shape_its_types_and_the_names_of_its_columns() -> None:
    rows = "\n".join(f"{n:>5} Adelie 3750" for n in range(344))
    described = TABLE | {"preview": f"      species mass\n{rows}", "heads": 1}
    text = seen(shown({VALUE_MIME: described}), max_chars=1500)
    assert text.startswith(
        "DataFrame: 344 rows x 3 columns\nobject: species, island; float64: mass\n"
        "      species mass\n    0 Adelie 3750\n"
    )
    assert "left out; outputs[7] holds the full text" in text
    assert text.endswith("  343 Adelie 3750")


@pytest.mark.parametrize(
    ("size", "held"),
    [
        (80, "printed: " + "x" * 80),
        (81, "printed 81 characters: " + "x" * 79 + "…"),
        (9000, "printed 9,000 characters: " + "x" * 79 + "…"),
    ],
)
def test_what_an_observation_held_is_said_in_a_line_with_its_first_80_characters(
    size: int, held: str
) -> None:
    """Which stands in its place when the conversation is shortened."""
    found = observe(CellResult(status="ok", outputs=(stream("x" * size),)), step=1)
    assert found.held == held


def test_short_outputs_stay_whole_beside_a_flood() -> None:
    text = seen(stream("x" * 100_000), shown({"text/plain": "value"}), stream("y" * 50_000))
    assert "\nvalue\n" in text
    assert len(text) <= 8000


def test_the_message_of_an_error_survives_any_flood() -> None:
    error = CellError(ename="KeyError", evalue="'the column'", traceback=("Cell In[1], line 1\n",))
    result = CellResult(status="error", outputs=(stream("x" * 100_000),), error=error)
    text = observe(result, step=1, max_chars=500).text
    assert text.endswith("KeyError: 'the column'")
    assert len(text) <= 500


awkward = st.text("aZ é\n\r\b\t\x00\x07\x1b[]0;m\x9b\ud800\u2028<&>'\"", max_size=30)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | awkward | awkward.map(lambda text: text * 100),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(awkward, inner, max_size=2),
    max_leaves=5,
)
outputs = st.lists(
    st.fixed_dictionaries(
        {"output_type": st.sampled_from(["stream", "display_data", "execute_result", "error", 7])},
        optional={
            "name": anything, "text": anything, "metadata": anything, "traceback": anything,
            "ename": anything, "evalue": anything,
            "data": st.dictionaries(
                st.sampled_from(["text/plain", "text/html", "image/png", VALUE_MIME, "a/b"]),
                anything, max_size=2,
            ),
        },
    ),
    max_size=4,
)  # fmt: skip


@given(outputs=outputs, max_chars=st.integers(200, 2000), status=st.sampled_from(["ok", "error"]))
def test_whatever_a_kernel_sends_the_text_is_bounded_and_encodable(
    outputs: list[OutputDict], max_chars: int, status: Any
) -> None:
    result = CellResult(status=status, outputs=tuple(outputs))
    text = observe(result, step=1, max_chars=max_chars).text
    assert 0 < len(text) <= max_chars * 6 // 5
    text.encode("utf-8")
    assert "\x1b" not in text


@given(text=st.text("aé \n\t{}…'", max_size=200), room=st.integers(100, 300))
def test_a_text_that_fits_is_shown_exactly(text: str, room: int) -> None:
    if len(text) <= room and text.strip():
        assert seen(stream(f"a{text}b"), max_chars=room + 50) == f"a{text}b"


def test_four_pictures_of_a_cell_are_passed_on_and_the_others_are_named() -> None:
    """A picture costs as much as a long text."""
    outputs = tuple(shown({"image/png": png()}) for _ in range(6))
    found = observe(CellResult(status="ok", outputs=outputs), step=1)
    assert len(found.images) == 4
    assert found.text.count("PNG 4x3") == 6
