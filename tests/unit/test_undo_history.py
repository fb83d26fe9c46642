"""What an undo knows of the kernels before it, and the answers that it gives to cells again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernel_agent.records.cell import CellResult
from kernel_agent.session.undo import MAX_KEPT, NO_CELL, History, Played, Recorded


def cell(number: int, **more: object) -> Played:
    described = {
        "number": number, "source": f"x = {number}", "result": CellResult(status="ok"),
        "requests": (), "began_ns": 100 * number, "ended_ns": 100 * number + 50, "is_step": True,
        **more,
    }  # fmt: skip
    return Played(**described)  # type: ignore[arg-type]  # given by name


def history(*lives: tuple[Path | None, list[int]]) -> History:
    made = History()
    for resumed, numbers in lives:
        made.begin(resumed)
        for number in numbers:
            made.recording(number, f"x = {number}", is_step=True).end(CellResult(status="ok"))
    return made


def numbers(cells: list[Played]) -> list[int]:
    return [played.number for played in cells]


def test_a_kernel_is_made_again_from_what_it_began_with_and_not_from_those_before_it() -> None:
    lived = history((Path("hibernated"), [4, 5]), (None, [6, 7]))
    assert lived.before(5)[0] == Path("hibernated")
    assert numbers(lived.before(5)[1]) == [4]
    assert lived.before(7)[0] is None
    assert numbers(lived.before(7)[1]) == [6]
    assert numbers(lived.before(6)[1]) == []


def test_a_step_that_no_kernel_ran_follows_the_last_cell_that_one_did() -> None:
    lived = history((None, [1, 2]), (None, [4]))
    assert numbers(lived.before(3)[1]) == [1, 2]
    assert numbers(lived.before(5)[1]) == [4]


def test_after_an_undo_only_the_cells_that_were_played_again_are_known() -> None:
    lived = history((None, [1, 2, 3, 4]))
    lived.go_back(3, [cell(1), cell(2)], None)
    assert numbers(lived.before(9)[1]) == [1, 2]
    lived.recording(5, "x = 5", is_step=False).end(CellResult(status="ok"))
    assert numbers(lived.before(9)[1]) == [1, 2, 5]
    assert lived.own_cells_from(2) == 1


def test_an_earlier_kernel_can_still_be_gone_back_to() -> None:
    lived = history((None, [1, 2]), (None, [3, 4]))
    lived.go_back(4, [cell(3)], None)
    assert numbers(lived.before(2)[1]) == [1]


def test_a_file_belongs_to_the_cell_in_which_it_changed_last_or_to_nobody() -> None:
    lived = history((None, []))
    lived.go_back(3, [cell(1), cell(2)], None)
    assert lived.owner("a", 120) == 1
    assert lived.owner("a", 250) == 2
    assert lived.owner("a", 190) == NO_CELL
    lived.put_back["a"] = (190, 1)
    assert lived.owner("a", 190) == 1
    assert lived.owner("a", 195) == NO_CELL


def request(number: int, *names: str) -> str:
    calls = [{"name": name, "args": [], "kwargs": {}} for name in names]
    return "kernel-agent/1 " + json.dumps({"id": number, "calls": calls})


def reply(number: int, *values: int) -> str:
    return json.dumps({"id": number, "results": [{"ok": True, "value": v} for v in values]})


async def test_the_same_request_gets_its_answers_in_their_order_under_its_own_number() -> None:
    recorded = Recorded([
        (request(1, "f"), reply(1, 10)), (request(2, "g"), reply(2, 20)),
        (request(3, "f"), reply(3, 30)),
    ])  # fmt: skip
    assert await recorded.answer(request(7, "g")) == reply(7, 20)
    assert await recorded.answer(request(8, "f")) == reply(8, 10)
    assert await recorded.answer(request(9, "f")) == reply(9, 30)
    assert recorded.missing == ""


@pytest.mark.parametrize("asked", [request(4, "f", "f"), request(4, "h"), request(5)])
async def test_what_was_not_asked_before_is_refused_for_each_of_its_calls(asked: str) -> None:
    recorded = Recorded([(request(1, "f"), reply(1, 10))])
    given = json.loads(await recorded.answer(asked))
    assert given["results"]
    assert all(not result["ok"] for result in given["results"])
    assert "it was not made" in recorded.missing


@pytest.mark.parametrize("hostile", ["", "input()", "kernel-agent/1 {", "{}", "{" * 5000, "[1]"])
async def test_a_request_that_is_none_is_answered_like_any_that_was_not_made(hostile: str) -> None:
    recorded = Recorded([(hostile, "an answer that is no JSON")])
    assert await recorded.answer(hostile) == "an answer that is no JSON"
    assert not json.loads(await recorded.answer(hostile))["results"][0]["ok"]


async def test_what_a_kernel_asks_and_is_answered_is_kept_up_to_a_bound() -> None:
    """Undoing gives the room back; a replay says that it has not all answers."""
    made = history((None, []))

    async def answer(_request: str) -> str:
        return "x" * (MAX_KEPT // 3)

    async def ask(number: int, times: int) -> None:
        recording = made.recording(number, "f()", is_step=True)
        for n in range(times):
            await recording.listening(answer)(request(n, "f"))
        recording.end(CellResult(status="ok"))

    await ask(1, 2)
    await ask(2, 9)
    _, (first, second) = made.before(3)
    assert (len(first.requests), first.dropped) == (2, 0)
    assert (len(second.requests), second.dropped) == (0, 9)
    recorded = Recorded(second.requests, dropped=second.dropped)
    told = json.loads(await recorded.answer(request(1, "f")))
    assert "too much to keep" in told["results"][0]["message"]
    assert "too much to keep" in recorded.missing
    made.go_back(1, [], None)
    await ask(1, 2)
    assert made.before(2)[1][-1].dropped == 0
