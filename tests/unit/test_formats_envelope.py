"""The envelope against what real models write where an object was asked for."""

from __future__ import annotations

import json

import pytest

from kernel_agent.errors import FormatError
from kernel_agent.formats import parse


def read(text):
    return parse(text, "envelope")


def kind(text):
    with pytest.raises(FormatError) as raised:
        read(text)
    return raised.value.kind


READABLE = [
    ("strict", '{"thought": "a", "code": "print(1)"}', "print(1)"),
    ("fenced", '```json\n{"thought": "a", "code": "print(1)"}\n```', "print(1)"),
    ("fenced as python", '```python\n{"thought": "a", "code": "print(1)"}\n```', "print(1)"),
    ("prose around", 'With {x} and {"a": 1}: {"thought": "a", "code": "f()"} so.', "f()"),
    ("raw line break", '{"thought": "a", "code": "x = 1\ny = 2\t"}', "x = 1\ny = 2"),
    ("trailing comma", '{"thought": "a", "code": "f()",}', "f()"),
    ("single quotes", "{'thought': 'it\\'s', 'code': 'print(\"x\")\\nf()'}", 'print("x")\nf()'),
    ("triple quotes", '{"thought": "a", "code": """x = "q"\ny = 2"""}', 'x = "q"\ny = 2'),
    ("bare keys", '{thought: "a", code: "f()"}', "f()"),
    ("comment", '{"thought": "a", // now\n "code": "f() # x"}', "f() # x"),
    ("missing comma", '{"thought": "a" "code": "f()"}', "f()"),
    ("inner quotes", '{"code": "f("a", "b")\\nprint("c")"}', 'f("a", "b")\nprint("c")'),
    ("other case", '{"Thought": "a", "CODE": "f()"}', "f()"),
    ("fence inside", '{"code": "```python\\nf()\\n```"}', "f()"),
    ("escaped twice", '{"code": "import os\\\\nf()"}', "import os\nf()"),
    ("lines", '{"code": ["x = 1", "f(x)"]}', "x = 1\nf(x)"),
    ("braces in code", '{"code": "d = {\\"}\\": [1, \'{\']}"}', "d = {\"}\": [1, '{']}"),
    ("escapes", '{"code": "print(\'\\u00e9\')",}', "print('é')"),
    ("reasoning", '<think>{"code": "bad()"}</think>{"code": "f()"}', "f()"),
    ("headless reasoning", '{"code": "bad()"}</think>{"code": "f()"}', "f()"),
    ("a turn in reasoning", '{"code": "bad()"}\nOutput: 1\n</think>{"code": "f()"}', "f()"),
    ("a block in reasoning", '```python\nbad()\n```\nno\n</think>{"code": "f()"}', "f()"),
    ("reasoning in code", '{"code": "g(\'<think>\')"}', "g('<think>')"),
    ("two objects", '{"code": "a()"}\n{"code": "f()"}', "f()"),
    ("a second without code", '{"code": "f()"}\n{"status": "ok"}', "f()"),
    ("invented turn", '{"code": "f()"}\nObservation: 1\n{"code": "b()"}', "f()"),
    ("after a call", '<function=f>{"code": "b()"}</function>\n{"code": "f()"}', "f()"),
    ("plain block", "Go.\n```python\nf()\n```", "f()"),
    ("object in a block", '```python\ng({"code": "DE"})\n```', 'g({"code": "DE"})'),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "source"), [r[1:] for r in READABLE], ids=[r[0] for r in READABLE]
)
def test_a_notation_that_models_write_is_read(text, source):
    """Leniency is about notation: the code is what was written, character by character."""
    assert read(text).source == source


def test_the_thought_comes_with_the_code():
    """Both fields are read; a thought that is null or missing is empty."""
    assert read('{"thought": " why ", "code": "f()"}').thought == "why"
    assert read('{"thought": null, "code": "f()"}').thought == ""


REFUSED = [
    ("cut in the code", '{"thought": "a", "code": "x = 1', "truncated"),
    ("cut before the brace", '{"thought": "a", "code": "x = 1"', "truncated"),
    ("cut inside a dict", '{"code": "x = {1: 2}', "truncated"),
    ("cut after a complete one", '{"code": "a()"} {"code": "b(', "truncated"),
    ("stray quote", '{"thought": "the "best", "code": "f()"}', "malformed"),
    ("ambiguous quotes", '{"code": "x = "" + y"}', "malformed"),
    ("joined strings", "{'code': 'x' 'y'}", "malformed"),
    ("number", '{"code": 5}', "malformed"),
    ("nested deeply", '{"code":' + "[" * 99, "malformed"),
    ("null", '{"thought": "a", "code": null}', "missing"),
    ("empty", '{"thought": "a", "code": ""}', "missing"),
    ("only a comment", '{"code": "# later"}', "missing"),
    ("no code", '{"thought": "a"}', "missing"),
    ("prose", "I am done.", "missing"),
    ("nothing", "", "missing"),
    ("reasoning only", '<think>{"code": "bad()"}', "missing"),
    ("not Python", '{"code": "x = ("}', "syntax"),
]


@pytest.mark.parametrize(
    ("text", "expected"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED]
)
def test_what_is_not_certain_is_refused_with_its_kind(text, expected):
    """A repair never turns half an object into code that runs."""
    assert kind(text) == expected


def test_every_cut_of_an_envelope_is_refused():
    """There is no place at which a cut leaves code that runs."""
    code = 'd = {"a": {"b": "c"}}\nprint(d["a"], "}", \'"}\')'
    whole = json.dumps({"thought": "It's {fine}.", "code": code})
    assert read(whole).source == code
    for length in range(1, len(whole)):
        assert kind(whole[:length]) in {"truncated", "malformed", "missing"}
