"""How a server wants to be asked, from what it complains about; and what a window is told from."""

from __future__ import annotations

from typing import Any

import pytest

from kernel_agent.formats import get_format
from kernel_agent.models.dialect import Ways
from kernel_agent.models.errors import EndpointError
from kernel_agent.models.usage import window_met
from kernel_agent.records.conversation import Reply, RequestOptions, Usage

ENVELOPE, TOOL = get_format("envelope").options(), get_format("tool").options()
NO_SCHEMA = "response_format.type: Input should be 'text' or 'json_object'"


def complaint(text: str, status: int = 400) -> EndpointError:
    return EndpointError("refused", advice="", status=status, details=text)


def give_way(ways: Ways, text: str, options: RequestOptions = ENVELOPE) -> str | None:
    return ways.give_way(complaint(text), options, streamed=True)


def asked(ways: Ways, options: RequestOptions = ENVELOPE) -> dict[str, Any]:
    return ways.head(options, stream=False)


def test_a_schema_that_is_refused_is_asked_for_as_a_json_object_and_then_left_out() -> None:
    """Each once; a server that refuses both gets what it got before there was a second way."""
    ways = Ways()
    assert asked(ways)["response_format"]["type"] == "json_schema"
    assert "asked for as json_object" in (give_way(ways, NO_SCHEMA) or "")
    schema = ENVELOPE.response_format["json_schema"]["schema"]  # type: ignore[index]
    assert asked(ways)["response_format"] == {"type": "json_object", "schema": schema}
    assert give_way(ways, "Extra inputs are not permitted") == (
        "does not accept response_format: left out"
    )
    assert asked(ways) == {}


def test_a_notation_that_has_worked_is_not_given_up_for_another_complaint() -> None:
    """Later trouble is about something else."""
    ways = Ways()
    give_way(ways, NO_SCHEMA)
    ways.note_success(ENVELOPE)
    assert give_way(ways, "Extra inputs are not permitted") is None
    assert asked(ways)["response_format"]["type"] == "json_object"


def test_a_users_own_format_is_left_out_as_ever() -> None:
    """It is not ours to write in another notation."""
    ways = Ways({"response_format": {"type": "json_schema", "json_schema": {"name": "mine"}}})
    assert give_way(ways, NO_SCHEMA, RequestOptions()) == (
        "does not accept response_format: left out"
    )


def test_the_one_function_is_named_where_calls_are_forced() -> None:
    """And where there are several, the model chooses."""
    ways = Ways()
    ways.notations = frozenset(["forced"])
    assert asked(ways, TOOL)["tool_choice"] == {"type": "function", "function": {"name": "python"}}
    two = RequestOptions(tools=TOOL.tools * 2)
    assert "tool_choice" not in asked(ways, two)
    assert "tool_choice" not in asked(ways, RequestOptions())
    assert "tool_choice" not in asked(Ways(), TOOL)


@pytest.mark.parametrize(
    ("options", "notations", "text"),
    [(ENVELOPE, [], NO_SCHEMA), (TOOL, ["forced"], "tool_choice is not supported")],
)
def test_what_is_tried_out_is_not_left_out(options, notations, text) -> None:  # type: ignore[no-untyped-def]
    """The refusal is what was to be found out: a reply without it would be paid for nothing."""
    ways = Ways()
    trial = ways.measuring(notations)
    assert give_way(trial, text, options) is None
    assert "does not accept parallel_tool_calls" in (
        give_way(trial, "parallel_tool_calls is unknown", TOOL) or ""
    )
    assert ways.omits("parallel_tool_calls")  # learned beside it, for all
    assert not ways.notations


@pytest.mark.parametrize(
    ("prompt", "written", "window"),
    [
        (904, 120, 1024), (500, 12, 512), (3968, 128, 4096), (900, 123, 1023),
        (5003, 4096, None), (5003, 100, None), (5003, 16_384, None),
    ],
)  # fmt: skip
def test_a_window_is_told_from_a_reply_that_filled_it(prompt, written, window) -> None:  # type: ignore[no-untyped-def]
    """A server's own bound is a round number of tokens by itself."""
    usage = Usage(prompt_tokens=prompt, completion_tokens=written, calls=1)
    assert window_met(Reply(content="", finish_reason="length"), usage) == window
    assert window_met(Reply(content="", finish_reason="stop"), usage) is None


def test_an_estimate_tells_no_window() -> None:
    """Nor does a count without a prompt."""
    cut = Reply(content="", finish_reason="length")
    for usage in (
        Usage(prompt_tokens=904, completion_tokens=120, estimated=True),
        Usage(completion_tokens=1001),
    ):
        assert window_met(cut, usage) is None
