"""A foreign schema, made bounded, and what is made of it: a signature, and a check of arguments."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("jsonschema", reason="the extra mcp is not installed")

from kernel_agent.tools.definition import Tool
from kernel_agent.tools.mcp.schema import problems, signature_of, tidy_schema


def shown(schema):
    def asked(): ...

    signature, names = signature_of(tidy_schema(schema, lambda text: text))
    asked.__doc__, asked.__signature__ = "Ask.", signature
    return Tool(asked)._shown, names


def test_a_schema_becomes_the_signature_that_a_person_would_write():
    """Required first; what may be left out shows its default."""
    text, names = shown(
        {
            "type": "object",
            "properties": {
                "limit": {"type": "integer", "default": 10},
                "query": {"type": "string"},
                "order by": {"enum": ["name", "size"]},
                "tags": {"type": "array", "items": {"type": "string"}},
                "from": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                "where": {"$ref": "#/$defs/Where"},
            },
            "required": ["query", "from"],
            "$defs": {"Where": {"type": "object", "properties": {"x": {"type": "number"}}}},
        }
    )
    assert text == (
        "(query: str, from_: str | None, limit: int = 10, "
        "order_by: Literal['name', 'size'] | None = None, tags: list[str] | None = None, "
        "where: {'x': NotRequired[float]} | None = None)"
    )
    assert names["from_"] == "from"
    assert shown({"type": "object"}) == ("(**arguments: Any)", {})
    assert shown({"type": "object", "properties": {}}) == ("()", {})


def test_what_an_object_holds_is_shown_while_it_is_short_and_plain():
    """Within lists too; a long one without what is deep in it, one with odd keys as a dict."""

    def of(properties, **more):
        items = {"type": "object", "properties": properties, **more}
        schema = {"properties": {"x": {"type": "array", "items": items}}, "required": ["x"]}
        return shown(schema)[0]

    text = {"type": "string"}
    assert of({"name": text, "a-b": {"type": "integer"}}, required=["name"]) == (
        "(x: list[{'name': str, 'a-b': NotRequired[int]}])"
    )
    deep = {"type": "object", "properties": {f"name_{n}": text for n in range(9)}}
    assert of({"a": deep, "b": deep}) == "(x: list[{'a': NotRequired[Any], 'b': NotRequired[Any]}])"
    assert of({f"a_long_name_{n}": text for n in range(20)}) == "(x: list[dict])"
    assert of({'a"""': text}) == of({"a`": text}) == of({"": text}) == "(x: list[dict])"
    assert of({}) == "(x: list[dict])"


def test_arguments_are_checked_by_what_the_schema_says():
    """Also deep in it, and by its references."""
    schema = tidy_schema(
        {
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/A"}},
            "required": ["a"],
            "$defs": {"A": {"type": "array", "items": {"type": "integer", "minimum": 1}}},
        },
        str,
    )
    assert problems(schema, {"a": [1, 2]}) == ""
    assert problems(schema, {"a": [0]}) == "a.0: 0 is less than the minimum of 1"
    assert "'a' is a required property" in problems(schema, {})


def test_a_schema_that_grows_when_it_is_followed_stays_small():
    """References to references to references: ten to the twelfth, were they followed."""
    laughs = {f"l{n}": {"allOf": [{"$ref": f"#/d/l{n + 1}"}] * 10} for n in range(12)}
    made = tidy_schema(
        {"type": "object", "d": laughs, "properties": {"x": {"$ref": "#/d/l0"}}}, str
    )
    assert len(json.dumps(made)) < 100_000
    assert problems(made, {"x": 1}) == ""
    cyclic = tidy_schema({"type": "object", "properties": {"x": {"$ref": "#"}}}, str)
    assert problems(cyclic, {"x": {"x": {"x": {}}}}) == ""


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["type", "properties", "items", "enum", "required", "anyOf", "minimum", "x",
                         "default", "$ref", "maxLength", "const", "additionalProperties"]),
        inner, max_size=4,
    ),
    max_leaves=20,
)  # fmt: skip


@given(JSON, st.dictionaries(st.text(max_size=5), JSON, max_size=3))
def test_no_schema_breaks_who_reads_it(schema, arguments):
    """Nonsense accepts anything or refuses something; it raises nothing."""
    made = tidy_schema(schema, lambda text: text)
    signature, names = signature_of(made)
    assert set(names) <= set(signature.parameters)
    compile(f"def f{str(signature).replace('typing.', '')}: pass", "f", "exec")
    assert isinstance(problems(made, arguments), str)
