"""Records survive the way into the trace and back."""

from __future__ import annotations

import json

import pytest

from kernel_agent.records.action import Call, Calls, Code, Final
from kernel_agent.records.cell import (
    Answer,
    CellError,
    CellResult,
    Changes,
    HostCall,
    Observation,
    Variable,
)
from kernel_agent.records.codec import from_json
from kernel_agent.records.conversation import Image, Usage
from kernel_agent.records.endings import ExitStatus
from kernel_agent.records.trace import (
    Condensation,
    DataFile,
    Retry,
    RunStart,
    RunStop,
    Step,
    to_json,
)

START = RunStart(
    run_id="r1",
    task="How many?",
    time="2026-01-01T00:00:00.000+00:00",
    model="offline",
    format="fenced",
    sandbox={"level": "none"},
    budget={"max_steps": 3},
    data=(DataFile(path="data/a.csv", source="a.csv", bytes=3, sha256="0", kind="CSV"),),
    versions={"python": "3.11"},
)
STEP = Step(
    run_id="r1",
    number=2,
    action=Code(source="1/0", thought="Try."),
    observation=Observation(
        text="ZeroDivisionError",
        images=(Image(media_type="image/png", data="aGk=", width=1, height=1),),
    ),
    result=CellResult(
        status="error",
        outputs=({"output_type": "stream", "name": "stdout", "text": "x", "$": "Step"},),
        error=CellError(ename="ZeroDivisionError", evalue="division by zero", traceback=("a",)),
        changes=Changes(
            added=(Variable(name="df", type="DataFrame", shape="2 x 3"),), removed=("old",), more=1
        ),
        calls=(HostCall(name="f", arguments={"args": [[1]]}, ok=True, result=[1, [2]]),),
    ),
    retries=(Retry(content="?", feedback="write code"),),
    usage=Usage(prompt_tokens=3, cost_usd=0.5),
)
STOP = RunStop(
    run_id="r1", status=ExitStatus.ANSWERED, answer=Answer(text="1", value=[1, {"a": []}])
)


CONDENSATION = Condensation(
    run_id="r1",
    kind="summarised",
    first=1,
    last=7,
    text="`df` is clean.",
    by="model",
    dropped=("`gone` too.",),
    usage=Usage(prompt_tokens=5, calls=1),
)


@pytest.mark.parametrize(
    "record", [START, STEP, STOP, CONDENSATION], ids=lambda r: type(r).__name__
)
def test_a_record_comes_back_from_json_as_it_went_in(record: object) -> None:
    assert from_json(json.loads(json.dumps(to_json(record)))) == record


@pytest.mark.parametrize(
    "action",
    [
        Final(answer={"rows": [1, 2]}, thought="t"),
        Calls(calls=(Call(name="f", arguments={"x": [1]}, id="c1"),)),
    ],
)
def test_the_actions_of_formats_to_come_are_carried_too(action: Final | Calls) -> None:
    assert from_json(json.loads(json.dumps(to_json(action)))) == action


def test_an_output_that_names_a_record_stays_plain_data() -> None:
    """Outputs come from a hostile kernel: ``"$"`` in them must build nothing."""
    back = from_json(to_json(STEP))
    assert back.result.outputs[0]["$"] == "Step"


def test_fields_of_a_later_version_are_dropped() -> None:
    data = {**to_json(STOP), "added_later": 1}
    assert from_json(data) == STOP


@pytest.mark.parametrize(
    "data", [{"$": "Nonsense"}, {"$": "Step", "number": 1}, {"$": "RunStop", "status": "fine"}]
)
def test_damage_is_a_value_error(data: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"record|fine"):
        from_json(data)


def test_unknown_cost_stays_unknown_and_known_cost_adds_up() -> None:
    assert (Usage(prompt_tokens=1) + Usage(prompt_tokens=2)).cost_usd is None
    assert (Usage(cost_usd=0.25) + Usage()).cost_usd == 0.25
    assert (Usage(cost_usd=0.25) + Usage(cost_usd=0.5)).cost_usd == 0.75


def test_what_replies_took_adds_up_in_each_of_its_figures() -> None:
    one = Usage(
        prompt_tokens=1, completion_tokens=2, cached_tokens=3, reasoning_tokens=4, calls=5,
        cost_usd=0.5,
    )  # fmt: skip
    assert one + one == Usage(
        prompt_tokens=2, completion_tokens=4, cached_tokens=6, reasoning_tokens=8, calls=10,
        cost_usd=1.0,
    )  # fmt: skip
    guessed = Usage(estimated=True)
    assert (one + guessed).estimated
    assert (guessed + one).estimated
    assert one.total_tokens == 3


@pytest.mark.parametrize("action", [{"$": "Usage"}, {"source": "x"}, {"$": 5}, "Code", [1]])
def test_an_action_that_is_no_action_is_damage(action: object) -> None:
    with pytest.raises(ValueError, match="Code"):
        from_json({**to_json(STEP), "action": action})


@pytest.mark.parametrize(
    ("record", "field", "value"),
    [
        (STEP, "number", "1"),
        (STEP, "number", True),
        (STEP, "number", 10**30),
        (STEP, "retries", {}),
        (STEP, "retries", "none"),
        (STOP, "steps", 1.5),
        (STOP, "seconds", "1"),
        (STOP, "seconds", 2.0**63),
        (STOP, "seconds", float("inf")),
    ],
)
def test_a_number_or_a_list_of_another_type_is_damage(
    record: object, field: str, value: object
) -> None:
    with pytest.raises(ValueError, match=r"it is no (list|(whole )?number)"):
        from_json({**to_json(record), field: value})


def test_no_ending_loses_the_exit_code_that_scripts_know() -> None:
    codes = {status.value: status.exit_code for status in ExitStatus}
    assert (
        codes.items()
        >= {
            "answered": 0,
            "step_limit": 3,
            "time_limit": 3,
            "token_limit": 3,
            "cost_limit": 3,
            "loop_detected": 3,
            "model_error": 4,
            "kernel_lost": 5,
            "cell_failed": 1,
            "denied": 6,
            "interrupted": 130,
        }.items()
    )


def test_what_is_rare_stands_in_a_trace_only_where_it_is_so():
    plain, joined = Code(source="f()"), Code(source="f()\n\ng()", starts=(1, 3))
    assert to_json(plain) == {"$": "Code", "source": "f()", "thought": ""}
    assert from_json(to_json(plain)) == plain
    assert to_json(joined)["starts"] == [1, 3]
    assert from_json(to_json(joined)) == joined
