"""What a server says is bounded and looked at before the client is given it."""

from __future__ import annotations

import pytest

pytest.importorskip("mcp", reason="the extra mcp is not installed")

from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCResponse

from kernel_agent.tools.mcp.answers import CHECKED_MAX, PIECES_MAX, TOLD_MAX, fit, problem

SAID = {"type": "text", "text": "said"}


def test_an_answer_is_refused_for_the_first_thing_that_is_wrong():
    """Not for each of a hundred thousand, which would take the client seconds."""
    assert problem({"content": [SAID]}) == ""
    wrong = problem({"content": [SAID, {"type": "text"}, 7]})
    assert wrong.startswith("what it sent is malformed: content.1.")
    assert problem({"tools": [{"name": 7}]}).startswith("what it sent is malformed: tools.0.")


def test_pieces_and_items_that_the_client_checks_are_bounded():
    """Structured content is checked by nobody, and is not."""
    assert problem({"content": [SAID] * PIECES_MAX}) == ""
    assert problem({"content": [SAID] * (PIECES_MAX + 1)}).endswith("1,001 content, at most 1,000")
    audience = {**SAID, "annotations": {"audience": [1] * (CHECKED_MAX + 1)}}
    assert "more than 20,000 items" in problem({"content": [audience]})
    assert problem({"content": [], "structuredContent": {"a": [[]] * 60_000}}) == ""


async def test_what_is_refused_fails_the_call_that_it_answers_and_a_long_note_is_left_out():
    """Nobody waits for a note."""

    def note(items: int) -> SessionMessage:
        params = {"level": "info", "data": list(range(items))}
        return SessionMessage(
            JSONRPCNotification(jsonrpc="2.0", method="notifications/message", params=params)
        )

    answer = JSONRPCResponse(jsonrpc="2.0", id=7, result={"content": [1]})
    refused = (await fit(SessionMessage(answer))).message
    assert isinstance(refused, JSONRPCError)
    assert refused.id == 7
    short, long = note(9), note(TOLD_MAX + 9)
    assert await fit(short) is short
    assert await fit(long) is None
