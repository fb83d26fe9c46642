"""Whether two lots of outputs say the same."""

from __future__ import annotations

import base64
import io
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from PIL import Image as Pillow

from kernel_agent.notebook.clock import Period
from kernel_agent.notebook.comparison import Verdict, compare
from kernel_agent.notebook.outputs import PAGE_MIME, notebook_outputs
from kernel_agent.records.cell import OutputDict
from kernel_agent.safe.text import shorten

SAME, VOLATILE, DIFFERENT = Verdict.SAME, Verdict.VOLATILE, Verdict.DIFFERENT


def stream(text: Any, name: str = "stdout") -> OutputDict:
    return {"output_type": "stream", "name": name, "text": text}


def shown(data: dict[str, Any], kind: str = "display_data") -> OutputDict:
    return {"output_type": kind, "data": data, "metadata": {}}


def error(ename: str, evalue: str, *traceback: str) -> OutputDict:
    return {
        "output_type": "error",
        "ename": ename,
        "evalue": evalue,
        "traceback": list(traceback),
    }


def picture(level: int = 100, size: tuple[int, int] = (20, 10), dots: int = 0, **save: Any) -> str:
    image = Pillow.new("RGB", size, (level, level, level))
    for x in range(dots):
        image.putpixel((x % size[0], x // size[0]), (255, 0, 0))
    buffer = io.BytesIO()
    image.save(buffer, format="PNG", **save)
    return base64.b64encode(buffer.getvalue()).decode()


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        ("42\n", "42\n", SAME),
        ("42\n", "42", SAME),
        (["4", "2\n"], "42\n", SAME),
        ("\x1b[31mred\x1b[0m", "red", SAME),
        ("10%\r100%\n", "50%\r100%\n", SAME),
        ("42", "43", DIFFERENT),
        ("", "42", DIFFERENT),
        ("<A object at 0x7f0012345678>", "<A object at 0x7fffaaaaaaaa>", VOLATILE),
        ("Cell In[3], line 1", "Cell In[12], line 1", VOLATILE),
        ("/tmp/ipykernel_12/34.py:1: W", "/tmp/ipykernel_56/78.py:1: W", VOLATILE),
        ("/a/lib/site-packages/p.py:3: W", "/b/c/site-packages/p.py:3: W", VOLATILE),
        ("/tmp/tmpab12/x", "/tmp/tmpcd34/x", VOLATILE),
        ("/tmp/tmpab12", "/tmp/ka-12-ab/tmp/tmpcd34", VOLATILE),
        ("id 123e4567-e89b-12d3-a456-426614174000", "id 00000000-1111-2222-3333-444444444444",
         VOLATILE),
        ("Wall time: 7.15 μs", "Wall time: 12 ms", VOLATILE),
        ("/tmp/tmpab12cd34/x", "/tmp/ka-12-ab_cd/tmp/tmpzz12cd34/x", VOLATILE),
        ("CPU times: total: 1e+03 ns", "CPU times: total: 3 μs", VOLATILE),
        ("Wall time: 1min 3s", "Wall time: 59.2 s", VOLATILE),
        ("CPU times: user 5 μs, sys: 0 ns, total: 5 μs",
         "CPU times: user 1 s, sys: 2 ms, total: 1 s", VOLATILE),
        ("100%|##| 3/3 [00:01<00:00, 2.9it/s]", "100%|##| 3/3 [00:04<00:00, 0.7it/s]", VOLATILE),
        ("3rows [00:01<00:00, 2.9rows/s]", "3rows [00:04<00:00, 0.7rows/s]", VOLATILE),
        ("7.35 ns ± 0.05 ns per loop (mean ± std. dev. of 7 runs, 100,000,000 loops each)",
         "12.1 ns ± 1.2 ns per loop (mean ± std. dev. of 7 runs, 10,000,000 loops each)", VOLATILE),
        (("The slowest run took 7.01 times longer than the fastest. This could mean that an "
         "intermediate result is being cached.\n1 ms ± 2 μs per loop (of 7 runs, 1 loop each)"),
         "3 ms ± 1 μs per loop (of 7 runs, 10 loops each)", VOLATILE),
        ("1000000 loops, best of 5: 7 ns per loop", "100000 loops, best of 5: 9 ns per loop",
         VOLATILE),
        ("3 loops each", "4 loops each", DIFFERENT),
        ("distance: 5 min", "distance: 6 min", DIFFERENT),
        ("0x12", "0x13", DIFFERENT),
    ],
)  # fmt: skip
def test_text_is_compared_without_what_passes(old: Any, new: Any, verdict: Verdict) -> None:
    assert compare([stream(old)], [stream(new)]).verdict == verdict


NOW = datetime(2026, 11, 22, 8, 7, 12, 345678, tzinfo=UTC)
PERIOD = Period(NOW.timestamp() - 3, NOW.timestamp() + 1)
SUMMARY = """\
Dep. Variable:                      y   R-squared:                       1.000
Date:                {0:%a, %d %b %Y}   Prob (F-statistic):            0.00012
Time:                        {0:%H:%M:%S}   Log-Likelihood:                 4.5155
"""


@pytest.mark.parametrize(
    "form",
    [
        SUMMARY,
        "{0}",
        "{0:%Y-%m-%d %H:%M}",
        "at {0:%Y-%m-%dT%H:%M:%S}Z",
        "[{0:%Y-%m-%d %H:%M:%S},123] INFO done",
        "{0:%a %b %d %H:%M:%S %Y}",
        "{0:%B %d, %Y}",
        "{0:%d/%m/%Y}",
        "{0:%m/%d/%Y} {0:%H:%M:%S}",
        "{0:%d.%m.%Y %H:%M}",
        "as of {0:%H:%M}",
        "{0!r}",
        "{1}",
        "{1:.0f}",
    ],
)
def test_what_the_clock_said_is_no_difference(form: str) -> None:
    earlier = NOW - timedelta(days=40, hours=5)
    old, new = (form.format(t, t.timestamp()) for t in (earlier, NOW))
    assert old != new
    assert compare([stream(old)], [stream(new)], period=PERIOD).verdict == VOLATILE
    assert compare([stream(old)], [stream(new)]).verdict == DIFFERENT
    assert compare([stream(f"{old} 1")], [stream(f"{new} 2")], period=PERIOD).verdict == DIFFERENT


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("to 2025-12-31", "to 2024-12-31"),
        ("2026-10-01", "2026-11-21"),
        ("2026-10-01 10:00:00", "2026-11-22 08:00:12"),
        ("2026-10-01 10:00:00", "2026-11-22 08:08:12"),
        ("08:07:12", "08:08:12"),
        ("08:07", "08:09"),
        ("08:07", "08:05"),
        ("n = 1795334832", "n = 1795334932"),
        ("date 2026-10-01", "date 2026-11-22 and 2026-11-22"),
        ("2026-02-31", "2026-02-30"),
        ("version 10.1.2026", "version 11.1.2026"),
    ],
)
def test_another_time_than_that_of_the_run_is_a_difference(old: str, new: str) -> None:
    assert compare([stream(old)], [stream(new)], period=PERIOD).verdict == DIFFERENT


@given(
    st.datetimes(datetime(1990, 1, 1), datetime(2060, 1, 1)),
    st.datetimes(datetime(1990, 1, 1), datetime(2060, 1, 1)),
)
def test_two_dates_of_the_data_are_never_taken_for_the_clock(a: datetime, b: datetime) -> None:
    """But for the day and the moment of the run itself."""
    assume(a != b and all(abs(t.replace(tzinfo=UTC) - NOW) > timedelta(days=2) for t in (a, b)))
    for form in ("{0}", "{0:%Y-%m-%d}", "{0:%d %b %Y}", "{0!r}"):
        old, new = form.format(a), form.format(b)
        if old != new:
            assert compare([stream(old)], [stream(new)], period=PERIOD).verdict == DIFFERENT


@given(st.sets(st.one_of(st.text(), st.integers(), st.none(), st.booleans()), min_size=1))
def test_a_set_may_be_printed_in_any_order(members: set[Any]) -> None:
    """Its own braces, and those in its texts, are the writer's."""
    assume(not any(isinstance(m, str) and set(m) & set("{}") for m in members))
    old, new = (f"{{{', '.join(map(repr, some))}}}" for some in (members, reversed([*members])))
    assert compare([stream(f"x: {old}")], [stream(f"x: {new}")]).verdict in (SAME, VOLATILE)
    assert compare([stream(old)], [stream(f"{old[:-1]}, 'more'}}")]).verdict == (
        DIFFERENT if "more" not in members else VOLATILE
    )


def test_a_dictionary_in_another_order_is_a_difference() -> None:
    old, new = [stream("{'a': 1, 'b': 2}")], [stream("{'b': 2, 'a': 1}")]
    assert compare(old, new).verdict == DIFFERENT


def page(text: str) -> OutputDict:
    return shown({"text/plain": text, PAGE_MIME: {}})


def test_help_that_jupyter_shows_beside_the_notebook_is_no_output_of_the_cell() -> None:
    assert compare([], [page("Signature: len(obj, /)")]).verdict == SAME
    assert compare([stream("x")], [page("help"), stream("x")]).verdict == SAME


def test_help_that_is_in_the_notebook_must_be_the_same_again() -> None:
    recorded = notebook_outputs([page("old help")])
    assert compare(recorded, [page("old help")]).verdict == SAME
    assert compare(recorded, [page("new help")]).verdict == DIFFERENT
    assert compare(recorded, []).verdict == DIFFERENT


def test_streams_are_compared_as_a_whole() -> None:
    old = [stream("a\n"), stream("careful\n", "stderr"), stream("b\n")]
    new = [stream("a\nb\n"), stream("care", "stderr"), stream("ful\n", "stderr")]
    assert compare(old, new).verdict == SAME


def test_each_run_has_its_own_folder() -> None:
    found = compare(
        [stream("/home/a/run/x.csv")], [stream("/other/copy/x.csv")],
        folders=("/home/a/run", "/other/copy"),
    )  # fmt: skip
    assert found.verdict == VOLATILE


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        ({"text/plain": "1"}, {"text/plain": "1", "text/html": "<b>1</b>"}, SAME),
        ({"text/plain": "1", "text/html": "<b>1</b>"}, {"text/plain": "1"}, SAME),
        ({"text/plain": "1", "text/html": "<table><td>1"}, {"text/plain": "1"}, DIFFERENT),
        ({"text/plain": "1", "text/html": "<table><td>1"},
         {"text/plain": "1", "text/html": "<table><td>2"}, DIFFERENT),
        ({"application/json": {"a": 1, "b": 2}}, {"application/json": {"b": 2, "a": 1}}, SAME),
        ({"application/json": {"a": 1}}, {"application/json": {"a": 2}}, DIFFERENT),
        ({"text/plain": "Wall time: 5 ms\n1"}, {"text/plain": "Wall time: 9 ms\n1"}, VOLATILE),
        ({"text/plain": """{"it's", 1}"""}, {"text/plain": """{1, "it's"}"""}, VOLATILE),
        ({"image/png": picture()}, {"image/png": picture() + "\n"}, SAME),
        ({"image/png": picture()}, {"image/png": picture(compress_level=0)}, SAME),
        ({"image/png": picture()}, {"image/png": picture(101)}, VOLATILE),
        ({"image/png": picture()}, {"image/png": picture(140)}, DIFFERENT),
        ({"image/png": picture()}, {"image/png": picture(dots=50)}, DIFFERENT),
        ({"image/png": picture()}, {"image/png": picture(size=(21, 10))}, DIFFERENT),
        ({"image/png": "broken"}, {"image/png": picture()}, DIFFERENT),
        ({"text/html": "<table id='T_a1b2c'></table><b>"},
         {"text/html": "<table id='T_00fff'></table><b>"}, SAME),
    ],
)  # fmt: skip
def test_displays_are_compared_by_type(old: Any, new: Any, verdict: Verdict) -> None:
    assert compare([shown(old)], [shown(new)]).verdict == verdict


def test_a_table_is_the_same_as_its_sanitised_form() -> None:
    raw = "<style>a</style><table class='x'><tr onclick='y'><td style='z'>1</td></tr></table>"
    output = shown({"text/html": raw, "text/plain": "1"})
    assert compare(notebook_outputs([output], execution_count=1), [output]).verdict == SAME


def test_a_text_that_the_notebook_shortened_is_recognised() -> None:
    long = "".join(f"line {i}\n" for i in range(1000))
    assert compare([stream(shorten(long, 500))], [stream(long)]).verdict == VOLATILE
    assert compare([stream(shorten(long, 500))], [stream(f"{long}x")]).verdict == DIFFERENT


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        (error("KeyError", "'a'", "one"), error("KeyError", "'a'", "other frames"), SAME),
        (error("KeyError", "'a'"), error("KeyError", "'b'"), DIFFERENT),
        (error("ValueError", "<A at 0x7f00aa00bb>"), error("ValueError", "<A at 0x7faaaa00bb>"),
         VOLATILE),
        (error("KeyError", "'a'"), shown({"text/plain": "1"}), DIFFERENT),
    ],
)  # fmt: skip
def test_errors_are_compared_by_type_and_message(
    old: OutputDict, new: OutputDict, verdict: Verdict
) -> None:
    assert compare([old], [new]).verdict == verdict


def test_a_difference_is_shown_as_a_short_diff() -> None:
    old, new = ([stream("".join(f"{i} {x}\n" for i in range(500)))] for x in "ab")
    found = compare(old, new)
    assert "-0 a" in found.detail
    assert "more lines" in found.detail
    assert len(found.detail) <= 2000


def test_an_output_that_is_gone_is_named() -> None:
    found = compare([shown({"image/png": picture()}), stream("x")], [stream("x")])
    assert found.verdict == DIFFERENT
    assert found.detail == "1 output in the notebook, 0 outputs now (image/png)"


def test_the_order_of_a_displays_types_is_no_difference() -> None:
    """Jupyter writes them sorted, a kernel sends them as the library made them."""
    data = {"application/x-b": "1", "application/javascript": "2"}
    sent = {"output_type": "display_data", "data": data, "metadata": {}}
    saved = {**sent, "data": dict(sorted(data.items()))}
    assert compare([saved], [sent]).verdict == SAME


def png(**of: Any) -> OutputDict:
    return shown({"image/png": picture(**of)})


def test_one_pixel_in_a_hundred_may_be_clearly_different() -> None:
    """Or all of them a little: one of 256 levels on average."""
    assert compare([png()], [png(dots=2)]).verdict == VOLATILE
    assert compare([png()], [png(dots=3)]).verdict == DIFFERENT
    assert compare([png()], [png(level=102)]).verdict == DIFFERENT


def test_what_is_different_about_a_picture_is_said() -> None:
    found = [compare([png()], [new]).detail for new in (png(dots=50), png(size=(21, 10)))]
    assert found == [
        "image/png: 25.00% of the pixels are clearly different",
        "image/png: the sizes are 20x10 and 21x10",
    ]


def test_a_picture_too_large_to_look_at_is_compared_by_its_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kernel_agent.notebook.comparison.MAX_PIXELS", 200)
    assert compare([png()], [png(level=101)]).verdict == VOLATILE
    monkeypatch.setattr("kernel_agent.notebook.comparison.MAX_PIXELS", 199)
    found = compare([png()], [png(level=101)])
    assert (found.verdict, found.detail) == (DIFFERENT, "image/png: other bytes")


def test_outputs_that_came_or_went_are_counted_and_named() -> None:
    text, figure = shown({"text/plain": "1"}), shown({"text/plain": "1", "image/png": picture()})
    assert compare([text], [text, figure, text]).detail == (
        "1 output in the notebook, 3 outputs now (image/png or text/plain, text/plain)"
    )
    assert compare([figure, text], [figure]).detail == (
        "2 outputs in the notebook, 1 output now (text/plain)"
    )
    failed = compare([text], [error("KeyError", "'a'")])
    assert failed.detail == "text/plain in the notebook, error KeyError: 'a' now"


def test_a_type_that_is_not_shown_any_more_is_named() -> None:
    all_of_it = {"text/html": "<table><td>1", "text/plain": "1", "image/png": picture()}
    found = compare([shown(all_of_it)], [shown({"text/plain": "1"})])
    assert found.detail == "not shown any more: image/png, text/html"


def test_the_worst_part_is_the_verdict_with_all_that_is_as_bad() -> None:
    old = [stream("0x7f0012345678"), stream("1", "stderr"), shown({"text/plain": "1"})]
    new = [stream("0x7f0087654321"), stream("2", "stderr"), shown({"text/plain": "2"})]
    found = compare(old, new)
    assert found.verdict == DIFFERENT
    assert found.detail.count("@@") == 4  # of stderr and of the display
    assert "passing details" not in found.detail
    assert compare(old[:1], new[:1]).detail == "stdout: the same but for passing details"


def test_a_diff_tells_how_much_of_it_is_left_out() -> None:
    old, new = ([stream("\n".join(f"{i} {x}" for i in range(500)))] for x in "ab")
    lines = compare(old, new).detail.splitlines()
    assert lines[:2] == ["--- stdout in the notebook", "+++ stdout now"]
    assert (len(lines), lines[-1]) == (21, "… 983 more lines")
    few = [[stream("\n".join(f"{i} {x}" for i in range(8)))] for x in "ab"]
    assert "more lines" not in compare(*few).detail


def test_texts_that_differ_late_are_said_to() -> None:
    """A diff takes time with the square of what it compares."""
    same = "x" * 299 + "\n"
    late = compare([stream(same * 3000 + "a")], [stream(same * 3000 + "b")])
    assert late.detail == "stdout: the texts differ, but not where they begin"
    assert compare([stream("x" * 300 + "a")], [stream("x" * 300 + "b")]).detail == late.detail
    assert (
        "-" + "x" * 299 + "a"
        in compare([stream("x" * 299 + "a")], [stream("x" * 299 + "b")]).detail
    )


def test_the_root_is_no_folder_of_a_run() -> None:
    found = compare([stream("a/b")], [stream("a-b")], folders=("/", "-"))
    assert found.verdict == DIFFERENT


def test_a_notebook_that_kept_head_and_tail_is_compared_with_both() -> None:
    long = "".join(f"line {i}\n" for i in range(1000))
    kept = shorten(long, 500)
    assert compare([stream(kept)], [stream(f"x{long}")]).verdict == DIFFERENT
    assert compare([stream(long)], [stream(kept)]).verdict == DIFFERENT


def test_json_of_any_keys_is_compared() -> None:
    odd = {"application/json": {1: "a", "b": "c"}}
    assert compare([shown(odd)], [shown(dict(odd))]).verdict == SAME
    assert compare([shown(odd)], [shown({"application/json": {1: "a"}})]).verdict == DIFFERENT


def test_what_our_own_renderer_reads_is_no_output() -> None:
    plain = {"text/plain": "1"}
    own = {**plain, "application/vnd.kernel-agent.value+json": {"a": 1}}
    assert compare([shown(own)], [shown(plain)]).verdict == SAME
