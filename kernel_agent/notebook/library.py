"""nbformat, imported without what takes long to import and no notebook asks for.

nbformat imports jsonschema, which imports, where they are installed (JupyterLab brings them), a
package for each kind of text that a schema may ask for. One compiles a grammar of 38 rules when it
is imported, one large patterns, one brings a library of dates. Stand-ins take their places
meanwhile, which import them when such a text is to be checked.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from typing import Any

# Of each, what jsonschema calls, and what that raises for a text that is not of the kind.
_LATER = {
    "rfc3987_syntax": ("is_valid_syntax", ""),
    "rfc3986_validator": ("validate_rfc3986", ""),
    "isoduration": ("parse_duration", "DurationParsingException"),
}


def _import_jsonschema() -> None:
    if "jsonschema" in sys.modules:
        return
    later = [name for name in _LATER.keys() - sys.modules if importlib.util.find_spec(name)]
    sys.modules |= {name: _stand_in(name, *_LATER[name]) for name in later}
    try:
        importlib.import_module("jsonschema")
    finally:
        for name in later:
            del sys.modules[name]


def _stand_in(name: str, function: str, error: str) -> types.ModuleType:
    refused = type(error, (Exception,), {})

    def check(*told: Any, **more: Any) -> Any:
        package = importlib.import_module(name)
        try:
            return getattr(package, function)(*told, **more)
        except getattr(package, error, ()) as why:
            raise refused(*why.args) from why

    module = types.ModuleType(name)
    vars(module).update({function: check, error: refused})
    return module


_import_jsonschema()

import nbformat  # noqa: E402 - after what it imports

__all__ = ["nbformat"]
