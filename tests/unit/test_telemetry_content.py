"""What spans say of a conversation."""

from __future__ import annotations

import json

import pytest

from kernel_agent.records.conversation import Image, Message
from kernel_agent.session.telemetry.content import describe_input


@pytest.mark.parametrize("role", ["user", "tool"])
def test_a_picture_is_named_and_not_sent(role: str) -> None:
    picture = Image(media_type="image/png", data="iVBORw0KGgo", width=640, height=480)
    message = Message(role=role, content="a figure", images=(picture,), tool_call_id="c1")  # type: ignore[arg-type]  # a literal's values
    told = str(describe_input([message])["gen_ai.input.messages"])
    *_, named = json.loads(told)[0]["parts"]
    assert named == {"type": "text", "content": "(image/png, 640 x 480)"}
    assert "a figure" in told
    assert "iVBOR" not in told
