"""What three real models wrote, read by the fenced format. The code is only parsed, never run.

The turns lie beside the repository and are not part of it; without them the tests are skipped.
"""

from __future__ import annotations

import ast
import gzip
import json
import re
from functools import cache
from pathlib import Path

import pytest

from kernel_agent.errors import FormatError
from kernel_agent.formats import parse
from kernel_agent.formats.reading.source import compile_error
from kernel_agent.records.action import Code

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "data" / "recorded-turns"
MODELS = ["CodeActAgent-Mistral-7b-v0.1", "OpenCodeInterpreter-DS-6.7B", "gpt-4-0613"]
EVERY = 4  # one episode in four of each model: all of them take more than two seconds

pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(), reason="the folder with recorded turns is not beside the repository"
)


@cache
def read_turns(model):
    """Return each different turn of a model with the action that is read, or the error."""
    with gzip.open(FOLDER / f"{model}.jsonl.gz", "rt", encoding="utf-8") as lines:
        episodes = [json.loads(line) for line in lines][::EVERY]
    texts = {t["content"] for e in episodes for t in e["turns"] if t["role"] == "assistant"}
    return [(text, outcome(text)) for text in sorted(texts)]


def outcome(text):
    try:
        return parse(text)
    except FormatError as error:
        return error


def has_delimiter(text):
    return "<execute>" in text or "```python\n" in text


@pytest.mark.parametrize("model", MODELS)
def test_a_single_closed_block_is_read_character_by_character(model):
    """Exactly what stands between the delimiters is what would be run."""
    seen = 0
    for text, action in read_turns(model):
        bodies = re.findall(r"<execute>(.*?)</execute>", text, re.DOTALL)
        bodies += re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
        delimiters = text.count("<execute>") + text.count("```")
        if len(bodies) == 1 and delimiters <= 2 and compile_error(bodies[0].strip()) is None:
            seen += 1
            assert isinstance(action, Code), text
            assert action.source == bodies[0].strip()
    assert seen > 100


@pytest.mark.parametrize("model", MODELS)
def test_every_turn_with_code_is_extracted_unless_it_was_cut_off_or_is_no_python(model):
    """Nothing is reported as missing, and truncated is said only of what never closes."""
    read = [(text, action) for text, action in read_turns(model) if has_delimiter(text)]
    errors = [(text, action) for text, action in read if isinstance(action, FormatError)]
    cut_off = [text for text, error in errors if error.kind == "truncated"]
    for text in cut_off:
        assert text.count("<execute>") > text.count("</execute>") or text.count("```") % 2
    assert all(error.kind in {"truncated", "syntax"} for _, error in errors)
    assert len(read) - len(errors) >= 0.96 * (len(read) - len(cut_off))


@pytest.mark.parametrize("model", MODELS)
def test_a_turn_without_a_delimiter_is_code_as_a_whole_or_nothing(model):
    """Answers and prose are never run; bare code that compiles as a whole is."""
    for text, action in read_turns(model):
        if "<execute>" not in text and "```" not in text:
            rest = text.removeprefix("Assistant:").strip()
            assert isinstance(action, Code) == is_program(rest)
            assert not isinstance(action, Code) or action.source == rest


@pytest.mark.parametrize("model", MODELS)
def test_what_is_read_is_lines_of_the_reply(model):
    """Blocks may be joined; neither tags nor role labels are taken for code."""
    for text, action in read_turns(model):
        if isinstance(action, Code):
            lines = {line.strip() for line in text.splitlines()}
            joined = all(line.strip() in lines for line in action.source.splitlines() if line)
            assert action.source in text or joined
            assert not re.search(r"^(</?\w+>|Assistant:|```)", action.source, re.MULTILINE)


@pytest.mark.parametrize("model", MODELS)
def test_a_block_that_was_cut_off_is_never_run(model):
    """In these records every open block at the end was cut by a limit; many still compile."""
    for text, action in read_turns(model):
        opened = text.rfind("<execute>")
        if text.count("<execute>") == 1 and opened > text.rfind("</"):
            assert isinstance(action, FormatError)
            assert action.kind == "truncated"


def is_program(text):
    try:
        statements = ast.parse(text).body
    except SyntaxError:
        return False
    return not all(
        isinstance(s, ast.Expr) and not isinstance(s.value, ast.Call) for s in statements
    )
