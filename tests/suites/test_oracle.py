"""What the oracle arm takes for parallel, and what it counts."""

from benchmarks.oracle import levels, needs_of, taken_from
from benchmarks.suites import GoldCall, GoldTask, GoldTurn


def call(name, result, **arguments):
    return GoldCall(name=name, arguments=arguments, result=result)


FIND = call("find", [{"id": 17, "name": "report.txt"}], text="budget")
OPEN = call("open", "first line\nsecond line", id=17)
MAIL = call("mail", None, to="Ann", body="second line")
LIST = call("list_all", ["a"], folder="inbox")
TURN = GoldTurn(request="Mail Ann what the budget says", calls=(FIND, OPEN, MAIL, LIST))


def test_a_call_waits_for_the_one_whose_value_it_uses_and_for_no_other():
    """An id from a result, a line of a text; what stands in the request is known already."""
    names = [[one.name for one in level] for level in levels(TURN, taken_from)]
    assert names == [["find", "list_all"], ["open"], ["mail"]]
    known = GoldTurn(request="Open 17", calls=(FIND, OPEN))
    assert len(levels(known, taken_from)) == 1


def test_turns_are_calls_or_levels_or_one_cell_and_always_the_reply():
    """Four calls in three levels; a second request without calls is one reply in all."""
    task = GoldTask(id="t", turns=(TURN, GoldTurn(request="Thanks", calls=())))
    needs = needs_of(task)
    assert [need.turns for need in needs.values()] == [6, 5, 3]
    prompts = [need.prompt_tokens for need in needs.values()]
    assert prompts == sorted(prompts, reverse=True)
