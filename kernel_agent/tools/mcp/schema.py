"""A foreign JSON Schema, made into a bounded one and into a Python signature. Pure.

The schema comes from a stranger: it may be cyclic, exponentially large once its references are
followed, name schemas on other machines, or hold regular expressions that never end. So
:func:`tidy_schema` keeps the keywords whose cost is bounded (JSON Schema 2020-12, Validation, 6),
puts local definitions in the place of their references, and stops at a number of nodes: beyond it
anything is accepted, and the server itself has to say what it thinks of an argument.
"""

from __future__ import annotations

import inspect
import keyword
import re
import types
from collections.abc import Callable, Mapping
from typing import Any, Literal

from kernel_agent.safe import one_line

NODES_MAX = 2_000
DEPTH_MAX = 12
PARAMETERS_MAX = 60
CHOICES_MAX = 20
_DEPTH_SHOWN = 3
SHAPE_MAX = 300  # characters of what is shown of one object
_KEPT = {
    "type", "enum", "const", "default", "minimum", "maximum", "exclusiveMinimum",
    "exclusiveMaximum", "minLength", "maxLength", "minItems", "maxItems", "minProperties",
    "maxProperties", "required",
}  # fmt: skip
_ONE = ("items", "additionalProperties", "not")
_MANY = ("anyOf", "oneOf", "allOf", "prefixItems")
_PLAIN = re.compile(r"[\w$@. -]{1,40}", re.ASCII)  # a key that can be shown as it is
_PYTHON = {"string": str, "integer": int, "number": float, "boolean": bool, "null": None}


def tidy_schema(schema: Any, words: Callable[[str], str]) -> dict[str, Any]:
    """Return an equivalent schema of an object that is cheap to validate by.

    Parameters
    ----------
    schema
        What the server gave.
    words
        Makes its descriptions fit to show.
    """
    left = NODES_MAX

    def node(part: Any, depth: int) -> Any:
        nonlocal left
        left -= 1
        if isinstance(part, bool):
            return part
        if not isinstance(part, dict) or left < 0 or depth > DEPTH_MAX:
            return {}
        if isinstance(part.get("$ref"), str):
            return node(_follow(schema, part["$ref"]), depth + 1)
        kept = {key: part[key] for key in part if key in _KEPT and _fits(key, part[key])}
        kept |= {k: node(part[k], depth + 1) for k in _ONE if isinstance(part.get(k), dict | bool)}
        kept |= {
            key: [node(item, depth + 1) for item in part[key][:CHOICES_MAX]]
            for key in _MANY
            if isinstance(part.get(key), list) and part[key]
        }
        if isinstance(part.get("description"), str):
            kept["description"] = words(part["description"])
        if isinstance(part.get("properties"), dict):
            kept["properties"] = {
                str(name): node(value, depth + 1) for name, value in part["properties"].items()
            }
        return kept

    made = node(schema, 0)
    return {"type": "object", **(made if isinstance(made, dict) and left >= 0 else {})}


def _follow(schema: Any, reference: str) -> Any:
    """Follow a reference within the schema; anything else points at nothing."""
    if not reference.startswith("#"):
        return {}
    found = schema
    for part in reference[1:].split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _fits(key: str, value: Any) -> bool:
    """Whether a keyword's value is of its kind: a validator need not survive another."""
    if key == "type":
        names = value if isinstance(value, list) else [value]
        known = {*_PYTHON, "array", "object"}
        return bool(names) and all(isinstance(name, str) and name in known for name in names)
    if key == "required":
        return isinstance(value, list) and all(isinstance(name, str) for name in value)
    if key == "enum":
        return isinstance(value, list) and 0 < len(value) <= NODES_MAX
    if key in ("const", "default"):
        return len(repr(value)) <= 2000
    whole = key.startswith(("minL", "maxL", "minI", "maxI", "minP", "maxP"))
    is_number = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
    return is_number and (not whole or value >= 0)


def signature_of(schema: Mapping[str, Any]) -> tuple[inspect.Signature, dict[str, str]]:
    """Return the Python signature of a tidied schema, and the schema's names by Python's.

    What may be left out shows its default, or None; a schema without names, or with too many,
    takes any keyword arguments.
    """
    properties = schema.get("properties", {})
    required = set(schema.get("required", ()))
    if "properties" not in schema or len(properties) > PARAMETERS_MAX:
        kind = inspect.Parameter.VAR_KEYWORD
        return inspect.Signature([inspect.Parameter("arguments", kind, annotation=Any)]), {}
    names: dict[str, str] = {}
    for name in properties:
        names[_free(identifier(name), names)] = name
    parameters = [
        _parameter(python, properties[name], needed=name in required)
        for python, name in names.items()
    ]
    parameters.sort(key=lambda parameter: parameter.default is not inspect.Parameter.empty)
    return inspect.Signature(parameters), names


def identifier(text: str) -> str:
    """Return an ASCII Python name as near to a text as can be; never a keyword or ``_private``."""
    name = re.sub(r"\W", "_", text, flags=re.ASCII).strip("_")[:60] or "value"
    if name[0].isdigit():
        name = f"n{name}"
    return f"{name}_" if keyword.iskeyword(name) or keyword.issoftkeyword(name) else name


def _free(name: str, taken: Mapping[str, str]) -> str:
    found, number = name, 2
    while found in taken:
        found, number = f"{name}_{number}", number + 1
    return found


def _parameter(name: str, schema: Any, *, needed: bool) -> inspect.Parameter:
    schema = schema if isinstance(schema, dict) else {}
    default: Any = inspect.Parameter.empty
    annotation = annotation_of(schema)
    if not needed:
        default = schema.get("default")
        if not isinstance(default, str | int | float | bool | None) or len(repr(default)) > 80:
            default = None
        if default is None and annotation is not Any:
            annotation = annotation | None
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


def annotation_of(schema: Mapping[str, Any], depth: int = 0) -> Any:  # noqa: PLR0911 - a table
    """Return the Python type that says the most about a value."""
    if depth > _DEPTH_SHOWN:
        return Any
    choices = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if choices is not None:
        return _choice(choices)
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return _either([annotation_of(part, depth + 1) for part in schema[key] if part])
    names = schema.get("type")
    if isinstance(names, list):
        return _either([annotation_of({**schema, "type": name}, depth + 1) for name in names])
    if names == "array":
        items = schema.get("items")
        inner = annotation_of(items, depth + 1) if isinstance(items, dict) and items else Any
        return list if inner is Any else types.GenericAlias(list, (inner,))
    if names == "object":
        return _shape(schema, depth)
    return _PYTHON.get(str(names), Any)


def _shape(schema: Mapping[str, Any], depth: int) -> type:
    """Return a dict's type that shows its keys and what is in them, if they are few and plain.

    ``help`` and the model see no more of an object than this: without it they had to guess.
    """
    properties = schema.get("properties")
    if not properties or not all(_PLAIN.fullmatch(name) for name in properties):
        return dict
    needed = set(schema.get("required", ()))
    for inside in (depth + 1, _DEPTH_SHOWN + 1):  # whole; if that is too long, this level only
        parts = []
        for name, part in properties.items():
            kind = annotation_of(part if isinstance(part, dict) else {}, inside)
            text = inspect.formatannotation(kind)
            parts.append(f"{name!r}: {text if name in needed else f'NotRequired[{text}]'}")
        shown = f"{{{', '.join(parts)}}}"
        if len(shown) <= SHAPE_MAX:
            return type(shown, (dict,), {"__module__": "builtins"})
    return dict


def _choice(values: list[Any]) -> Any:
    plain = [v for v in values if isinstance(v, str | int | bool) and len(str(v)) <= 40]
    if len(plain) == len(values) <= CHOICES_MAX and all(str(v).isprintable() for v in plain):
        return Literal[tuple(plain)]
    return str if all(isinstance(value, str) for value in values) else Any


def _either(kinds: list[Any]) -> Any:
    if not kinds or Any in kinds or len(kinds) > 4:
        return Any
    united = kinds[0]
    for kind in kinds[1:]:
        united = united | kind if united is not None else kind | None
    return united if united is not None else Any


def problems(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> str:
    """Return the faults of arguments by a tidied schema in one line; empty without any."""
    from jsonschema import Draft202012Validator

    found = []
    for error in Draft202012Validator(schema).iter_errors(arguments):
        where = ".".join(map(str, error.absolute_path))
        found.append(one_line(f"{where}: {error.message}" if where else error.message, 200))
        if len(found) == 3:
            break
    return "; ".join(found)
