"""A display that a later cell changes is shown changed; what a widget takes is not shown."""

from __future__ import annotations

from typing import Any

import pytest

from kernel_agent.kernel.collect import Collector
from kernel_agent.kernel.widgets import MAX_WIDGETS, OutputWidgets
from kernel_agent.notebook.comparison import Verdict, compare
from kernel_agent.records import displays
from kernel_agent.records.action import Code
from kernel_agent.records.cell import CellResult, Observation
from kernel_agent.records.displays import Displays, is_figure
from kernel_agent.records.trace import Record, RunStart, Step, Undone


def cell(*messages: tuple[str, str, str]) -> list[dict[str, Any]]:
    collector = Collector()
    for kind, text, display_id in messages:
        content = {"data": {"text/plain": text}, "transient": {"display_id": display_id}}
        collector.add_message(kind, content)
    return collector.outputs()


def shown(*cells: list[dict[str, Any]]) -> list[list[str]]:
    kept = Displays()
    taken = [kept.take(number, outputs) for number, outputs in enumerate(cells)]
    return [[output["data"]["text/plain"] for output in outputs] for outputs in taken]


def test_an_update_changes_the_earlier_cell_and_shows_nothing_itself() -> None:
    first = cell(("display_data", "a", "k"), ("display_data", "x", "other"))
    second = cell(("update_display_data", "b", "k"), ("display_data", "y", ""))
    assert shown(first, second) == [["b", "x"], ["y"]]


def test_each_step_keeps_what_happened_in_it() -> None:
    """The record: the first display as it was, and the change where it was made."""
    first, second = cell(("display_data", "a", "k")), cell(("update_display_data", "b", "k"))
    shown(first, second)
    assert [o["data"]["text/plain"] for o in (*first, *second)] == ["a", "b"]


def test_of_many_updates_in_a_cell_the_last_is_recorded() -> None:
    updates = [("update_display_data", str(n), "k") for n in range(1000)]
    second = cell(*updates)
    assert len(second) == 1
    assert shown(cell(("display_data", "a", "k")), second) == [["999"], []]


def test_a_second_display_of_an_id_is_shown_and_changes_the_first() -> None:
    first = cell(("display_data", "a", "k"), ("display_data", "b", "k"))
    assert shown(first) == [["b", "b"]]
    assert shown(first, cell(("display_data", "c", "k"))) == [["c", "c"], ["c"]]
    assert shown(cell(("display_data", "a", "k")), cell(("display_data", "c", "l"))) == [
        ["a"],
        ["c"],
    ]


def test_an_update_of_what_nobody_showed_shows_nothing() -> None:
    assert shown(cell(("update_display_data", "b", "k"))) == [[]]


def test_what_was_changed_is_known_by_the_cells_number() -> None:
    kept = Displays()
    kept.take(3, cell(("display_data", "a", "k")))
    kept.take(4, cell(("display_data", "z", "")))
    kept.take(5, cell(("update_display_data", "b", "k")))
    [(number, outputs)] = kept.changed.items()
    assert (number, outputs[0]["data"]) == (3, {"text/plain": "b"})


def test_what_may_still_be_changed_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(displays, "MAX_CHARS", 10)
    large = cell(("display_data", "x" * 20, "k"))
    assert shown(large, cell(("update_display_data", "b", "k"))) == [["x" * 20], []]


def test_text_up_to_the_bound_may_still_be_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(displays, "MAX_CHARS", 20)
    whole = cell(("display_data", "x" * 20, "k"))
    assert shown(whole, cell(("update_display_data", "b", "k"))) == [["b"], []]


@pytest.mark.parametrize(("most", "changed"), [(100, True), (99, False)])
def test_what_is_no_text_counts_as_a_hundred_characters(
    most: int, changed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(displays, "MAX_CHARS", most)
    first = {
        "output_type": "display_data", "data": {"application/json": {"a": 1}},
        "metadata": displays.add_sign({}, displays.SHOWN, "k"),
    }  # fmt: skip
    kept = Displays()
    kept.take(1, [first])
    kept.take(2, cell(("update_display_data", "b", "k")))
    assert bool(kept.changed) is changed


def test_of_one_display_in_many_places_a_bounded_number_is_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(displays, "MAX_SAME", 2)
    places = [cell(("display_data", "a", "k")) for _ in range(3)]
    seen = shown(*places, cell(("update_display_data", "b", "k")))
    assert seen == [["b"], ["b"], ["a"], []]


def test_of_so_many_displays_the_first_can_still_be_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(displays, "MAX_IDS", 2)
    places = cell(*(("display_data", "a", key) for key in "klm"))
    changes = cell(*(("update_display_data", "b", key) for key in "klm"))
    assert shown(places, changes) == [["b", "b", "a"], []]


@pytest.mark.parametrize("value", [None, 5, [], {"display_id": 5}, {"updates": ["k"]}])
def test_metadata_may_be_anything(value: object) -> None:
    output = {"output_type": "display_data", "data": 5, "metadata": {"kernel_agent": value}}
    assert Displays().take(1, [output]) == [output]


def test_what_a_widget_took_is_recorded_and_not_shown() -> None:
    collector = Collector()
    collector.capture("stream", {"name": "stdout", "text": "1\n"})
    collector.capture("display_data", {"data": {"text/plain": "2"}})
    collector.capture("error", {"ename": "E", "evalue": "e", "traceback": ["3"]})
    collector.capture("clear_output", {"wait": False})
    collector.add_message("display_data", {"data": {"text/plain": "4"}})
    recorded = collector.outputs()
    assert [output["data"]["text/plain"] for output in recorded] == ["1\n", "2", "3", "4"]
    assert shown(recorded) == [["4"]]
    with pytest.raises(TypeError):
        collector.capture("stream", {"text": 5})


def test_an_output_widget_takes_what_answers_the_message_that_it_names() -> None:
    widgets = OutputWidgets()
    state = {"_model_name": "OutputModel", "msg_id": ""}
    widgets.listen("comm_open", {"comm_id": "c", "data": {"state": state}})
    assert not widgets.take("")
    widgets.listen("comm_msg", {"comm_id": "c", "data": {"state": {"msg_id": "m"}}})
    assert widgets.take("m")
    assert not widgets.take("other")
    widgets.listen("comm_msg", {"comm_id": "c", "data": {"state": {"msg_id": ""}}})
    assert not widgets.take("m")


def test_other_widgets_and_messages_that_are_none_take_nothing() -> None:
    widgets = OutputWidgets()
    named = {"state": {"_model_name": "IntSliderModel", "msg_id": "m"}}
    of_slider, unhashable = {"comm_id": "c", "data": named}, {"comm_id": ["c"], "data": named}
    without = [{"comm_id": "c", "data": data} for data in (None, {"state": 5})]
    for content in (of_slider, unhashable, {}, *without):
        for kind in ("comm_open", "comm_msg", "comm_close"):
            widgets.listen(kind, content)
    assert not widgets.take("m")
    for number in range(MAX_WIDGETS + 5):
        state = {"_model_name": "OutputModel", "msg_id": str(number)}
        widgets.listen("comm_open", {"comm_id": str(number), "data": {"state": state}})
    assert not widgets.take(str(MAX_WIDGETS + 1))


def test_a_random_display_id_is_no_difference() -> None:
    def handle(number: int) -> dict[str, Any]:
        text = f"<DisplayHandle display_id={number:032x}>"
        return {"output_type": "execute_result", "data": {"text/plain": text}, "metadata": {}}

    assert compare([handle(1)], [handle(2)]).verdict == Verdict.VOLATILE


def step(number: int, outputs: list[dict[str, Any]], run_id: str = "r") -> Step:
    return Step(
        run_id=run_id, number=number, action=Code(source="x"), observation=Observation(text=""),
        result=CellResult(status="ok", outputs=tuple(outputs)),
    )  # fmt: skip


def texts(records: list[Record]) -> list[list[str]]:
    begun = RunStart(
        run_id="r", task="t", time="", model="m", format="fenced", sandbox={}, budget={}
    )
    return [
        [output["data"]["text/plain"] for output in record.result.outputs]
        for record in displays.apply_updates([begun, *records])
        if isinstance(record, Step) and record.result
    ]


def test_the_steps_of_a_trace_show_what_later_ones_made_of_them() -> None:
    first = step(1, cell(("display_data", "a", "k"), ("display_data", "x", "")))
    second = step(2, cell(("update_display_data", "b", "k")))
    assert texts([first, second]) == [["b", "x"], []]
    assert first.result is not None
    assert first.result.outputs[0]["data"] == {"text/plain": "a"}  # the record stays


def test_a_step_that_was_undone_changes_nothing_of_those_before_it() -> None:
    first = step(1, cell(("display_data", "a", "k")))
    second = step(2, cell(("update_display_data", "b", "k")))
    assert texts([first, second, Undone(run_id="r", first=2, last=2)])[0] == ["a"]


@pytest.mark.parametrize(
    ("data", "figure"),
    [
        ({"image/png": "iVBORw0", "text/plain": "<Figure>"}, True),
        ({"image/jpeg": "/9j/"}, True),
        ({"text/plain": "3"}, False),
        ("image/png", False),
        (None, False),
    ],
)
def test_a_figure_is_an_output_with_a_picture_in_it(data: object, figure: bool) -> None:
    assert is_figure({"output_type": "display_data", "data": data}) is figure
