"""nbformat, imported without what takes long to import and no notebook asks for.

What jsonschema checks addresses and durations with has stand-ins, which import it when asked.
"""

import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

# What jsonschema calls of each, and what that raises of a text that is not of the kind.
_LATER = {
    "rfc3987_syntax": ("is_valid_syntax", ""),
    "rfc3986_validator": ("validate_rfc3986", ""),
    "isoduration": ("parse_duration", "DurationParsingException"),
}


def _stand_in(name: str, function: str, error: str) -> ModuleType:
    module, refused = ModuleType(name), type(error, (Exception,), {})

    def check(*told: Any, **more: Any) -> Any:
        try:
            return getattr(import_module(name), function)(*told, **more)
        except getattr(import_module(name), error, ()) as why:
            raise refused(*why.args) from why

    vars(module).update({function: check, error: refused})
    return module


if "jsonschema" not in sys.modules:
    later = {name for name in _LATER.keys() - sys.modules if find_spec(name)}
    sys.modules |= {name: _stand_in(name, *_LATER[name]) for name in later}
    import_module("jsonschema")
    for name in later:
        del sys.modules[name]

import nbformat as nbformat  # noqa: E402, PLC0414 - after what it imports; it is what is given on
