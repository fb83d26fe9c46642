"""nbformat, imported without a grammar that takes a second and that no notebook asks for.

nbformat imports jsonschema, which imports rfc3987_syntax where that is installed (JupyterLab brings
it) to check addresses of one kind, and that compiles a grammar of 38 rules when it is imported. A
stand-in takes its place meanwhile, which imports it when such an address is to be checked.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types

_GRAMMAR = "rfc3987_syntax"


def _import_jsonschema() -> None:
    known = "jsonschema" in sys.modules or _GRAMMAR in sys.modules
    if known or importlib.util.find_spec(_GRAMMAR) is None:
        return

    def is_valid_syntax(rule: str, value: str) -> bool:
        return bool(importlib.import_module(_GRAMMAR).is_valid_syntax(rule, value))

    stand_in = types.ModuleType(_GRAMMAR)
    stand_in.is_valid_syntax = is_valid_syntax  # type: ignore[attr-defined]
    sys.modules[_GRAMMAR] = stand_in
    try:
        importlib.import_module("jsonschema")
    finally:
        del sys.modules[_GRAMMAR]


_import_jsonschema()

import nbformat  # noqa: E402 - after what it imports

__all__ = ["nbformat"]
