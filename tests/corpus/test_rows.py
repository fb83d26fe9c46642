"""Every recorded turn, by the form that it has, and beside what a peer's parser makes of it.

The peer is smolagents 1.26; its counts come from ``benchmarks/formats.py --peer``, which counts in
the same way. The turns lie beside the repository and are not part of it; without them the tests
are skipped. The code is only parsed, never run.
"""

from __future__ import annotations

import gzip
import json
import re
import warnings
from collections import Counter
from functools import cache
from itertools import pairwise

import pytest
from corpus.test_recorded_turns import FOLDER, is_program
from support.examples import thinned
from support.replies import outcome

from kernel_agent.errors import FormatError
from kernel_agent.formats import get_format
from kernel_agent.records.action import Code
from kernel_agent.records.conversation import Reply, ToolCall

pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(), reason="the folder with recorded turns is not beside the repository"
)

# Turns that end outside of a block: how many, how many the peer extracts, how many of those are
# valid Python.
WHOLE = {
    "closed tag": (1738, 1738, 1720),
    "tag never closed": (1, 1, 0),
    "fence": (716, 716, 715),
    "bare": (67, 0, 0),
    "none": (1421, 0, 0),
}
# Turns that end inside of a block. The peer does not know that they were cut: of a tag it runs what
# is left, of fences the closed ones before.
CUT_OFF = {
    "closed tag": (11, 11, 5),
    "tag never closed": (31, 31, 15),
    "fence": (62, 39, 39),
}


@cache
def turns():
    """Return every different turn: its row, whether it was cut off, and its text."""
    texts = set()
    for path in FOLDER.glob("*.jsonl.gz"):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                texts |= {t["content"] for t in json.loads(line)["turns"] if t["role"] != "user"}
    return [(row(text), is_cut_off(text), text) for text in sorted(texts)]


def row(text):
    """Return the form that a turn has, by its delimiters."""
    if "<execute>" in text:
        return "closed tag" if "</execute>" in text else "tag never closed"
    if "```" in text:
        return "fence"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of escapes in what is only looked at
        return "bare" if is_program(text.strip().removeprefix("Assistant:").strip()) else "none"


def is_cut_off(text):
    inside = text.rfind("<execute>") > text.rfind("</execute>")
    inside = inside and "</" not in text[text.rfind("<execute>") :]
    return inside or len(re.findall(r"^\s*```", text, re.MULTILINE)) % 2 == 1


def is_extracted(action):
    return isinstance(action, Code) or action.kind != "missing"


@cache
def real_cells():
    """Return code that real models wrote: what closed tags and fences hold."""
    actions = [outcome(text) for name, cut, text in turns() if not cut and name != "none"]
    return sorted({action.source for action in actions if isinstance(action, Code)})


@pytest.mark.parametrize("name", WHOLE)
def test_of_whole_turns_at_least_as_many_are_read_as_a_peer_reads(name):
    """Extracted, and valid Python; of the turns that hold none, nothing."""
    turns_there, extracted, valid = WHOLE[name]
    actions = [outcome(text) for form, cut, text in turns() if form == name and not cut]
    assert len(actions) == turns_there
    assert sum(map(is_extracted, actions)) >= extracted
    assert sum(isinstance(action, Code) for action in actions) >= valid
    assert name != "none" or not any(map(is_extracted, actions))


@pytest.mark.parametrize("name", CUT_OFF)
def test_what_is_left_of_a_turn_that_was_cut_off_is_found_but_not_run(name):
    """Only where something follows the code, which shows that it was finished.

    Of valid Python at least as much is found as the peer finds, and as much is run wherever the
    turn holds a finished block; a tag that never closes holds none.
    """
    turns_there, extracted, valid = CUT_OFF[name]
    cut_off = [text for form, cut, text in turns() if form == name and cut]
    actions = [outcome(text) for text in cut_off]
    assert len(actions) == turns_there
    assert sum(map(is_extracted, actions)) >= extracted
    ran = sum(isinstance(action, Code) for action in actions)
    found = sum(isinstance(a, FormatError) and is_program(a.code) for a in actions)
    assert ran == 0 if name == "tag never closed" else ran >= valid
    assert ran + found >= valid
    for text, action in zip(cut_off, actions, strict=True):
        if isinstance(action, Code):
            _, one_block, after = text.replace("\r\n", "\n").partition(action.source)
            follows = re.match(r"</|```|Output|Observation|Assistant", after.strip())
            assert follows or not one_block, text
        assert isinstance(outcome(Reply(content=text, finish_reason="length")), FormatError)


def test_a_cut_off_turn_is_run_when_the_endpoint_says_that_it_is_whole_and_it_compiles():
    """Which is what the peer believes of each: of tags that never close we read as many."""
    told = [
        outcome(Reply(content=text, finish_reason="stop"))
        for form, cut, text in turns()
        if form == "tag never closed" and cut
    ]
    assert sum(isinstance(action, Code) for action in told) >= CUT_OFF["tag never closed"][2]


def test_no_reply_that_the_endpoint_cut_off_is_run_in_any_format():
    """Whatever it holds, and wherever the code is."""
    for _, _, text in turns()[::20]:
        native = ToolCall(id="", name="python", arguments=json.dumps({"code": text}))
        for name in ("fenced", "envelope", "tool", "json"):
            for reply in (
                Reply(content=text, finish_reason="length"),
                Reply(content="", tool_calls=(native,), finish_reason="length"),
            ):
                assert outcome(reply, name).kind == "truncated"


@pytest.mark.parametrize("tags", ["<think>{}</think>", "{}\n</think>", "[THINK]{}[/THINK]"])
@pytest.mark.parametrize("name", ["fenced", "envelope", "tool"])
def test_nothing_inside_of_reasoning_is_run_whatever_real_models_write_there(tags, name):
    """Not the draft, not its blocks, not its tags; the code after it is."""
    pairs = list(pairwise(text for _, cut, text in turns() if not cut))
    for draft, after in thinned(pairs[::25]):
        if "<think" in draft or "</think" in draft:
            continue
        thinking = tags.format(draft)
        assert outcome(thinking, name).kind == "missing", draft
        alone = outcome(after, name)
        if isinstance(alone, Code) and alone.source not in draft:
            assert outcome(f"{thinking}\n{after}", name).source == alone.source


NOTATIONS = {
    "native": lambda code: (json.dumps({"code": code}), ""),
    "a bare string": lambda code: (code, ""),
    "a JSON string": lambda code: (json.dumps(code), ""),
    "encoded twice": lambda code: (json.dumps(json.dumps({"code": code})), ""),
    "fenced": lambda code: ("```json\n" + json.dumps({"code": code}) + "\n```", ""),
    "in tags": lambda code: (None, wrapped(code, "<tool_call>\n{}\n</tool_call>")),
    "in a fence": lambda code: (None, wrapped(code, "```json\n{}\n```")),
    "in parameters": lambda code: (
        None,
        f"<function=python>\n<parameter=code>\n{code}\n</parameter>\n</function>",
    ),
    "an envelope": lambda code: (None, json.dumps({"thought": "", "code": code})),
}


def wrapped(code, shape):
    return shape.format(json.dumps({"name": "python", "arguments": {"code": code}}))


@pytest.mark.parametrize("notation", NOTATIONS)
def test_real_code_comes_through_a_call_in_any_notation_as_it_was_written(notation):
    """Character by character: the quotes, backslashes and braces of real cells included."""
    cells = thinned(real_cells()[::4])
    assert len(cells) > 80
    for code in cells:
        arguments, content = NOTATIONS[notation](code)
        calls = () if arguments is None else (ToolCall(id="", name="python", arguments=arguments),)
        action = outcome(Reply(content=content, tool_calls=calls, finish_reason="stop"), "tool")
        assert isinstance(action, Code), (action, code)
        assert action.source == code


@pytest.mark.parametrize("name", ["fenced", "envelope", "tool"])
def test_real_code_comes_through_every_format_as_it_was_written(name):
    """What a format composes of a real cell, it reads back."""
    for code in thinned(real_cells()[::4]):
        assert outcome(get_format(name).compose(thought="Next.", code=code), name) == Code(
            source=code, thought="Next."
        )


def test_the_corpus_is_the_one_that_the_counts_are_of():
    """A different selection of turns needs new counts."""
    assert Counter(form for form, cut, _ in turns() if not cut) == {
        name: counts[0] for name, counts in WHOLE.items()
    }
