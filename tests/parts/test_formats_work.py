"""Reading a reply takes time in proportion to its length, whatever is in it."""

import contextlib
import sys

import pytest

from kernel_agent.errors import FormatError
from kernel_agent.formats import parse
from kernel_agent.records.conversation import Reply, ToolCall

FORMATS = ("fenced", "envelope", "tool", "json")
FLOODS = (
    "Some words. ", "x = f(1)\n", "```python\nx = 1\n```\n", "```python\n", "<execute>\n",
    "<execute>\n(\n</execute>\n", '{"code": "x"} ', '{"code": "', "{", "Output:\n", "</think>",
    "<function=f><parameter=x>1</parameter></function>", "<function=f><parameter=x>", '"', "\\",
    "<think>x</think>", "%x\n", "    ", '{"name": "f", "args": {}}', "<tool_call>", "'", "[",
    "a.b?\n", "```\nx = 1\n```\nOutput:\n",
)  # fmt: skip


def read(reply, name):
    with contextlib.suppress(FormatError):
        parse(reply, name)


def work(text, name):
    """Return how many calls, Python's and C's, it takes to read a reply."""
    calls = 0

    def count(_frame, event, _argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        read(Reply(content=text), name)
        native = (ToolCall(id="", name="python", arguments=text),)
        read(Reply(content="", tool_calls=native), name)
    finally:
        sys.setprofile(before)
    return calls


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("piece", FLOODS, ids=repr)
def test_the_work_grows_with_the_length_of_a_reply_and_no_faster(name, piece):
    """Counted in calls, which do not depend on the machine; seconds are in the benchmark."""
    work(piece * 100, name)  # what is imported once is not counted
    short, long = (work(piece * (size // len(piece)), name) for size in (2_500, 10_000))
    assert long <= 5 * short + 500
