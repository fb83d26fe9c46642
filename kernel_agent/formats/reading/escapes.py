"""IPython's own syntax in a cell: magics, commands, help; prose stays prose.

IPython takes any line that ends in ``?`` for help on its last word, and a ``!`` or ``?`` alone for
a command. For a reply that may be prose that is too much: ``Is 17 a prime number?`` would run.
Here help is a line that is a name and its question marks, and a command says what it runs; every
other line stays as it is, and then does not compile.

Imported only for source that shows a sign of that syntax, because IPython is heavy.
"""

from __future__ import annotations

import re
from typing import Any

from IPython.core.inputtransformer2 import EscapedCommand, HelpEnd, TransformerManager

_NAME = r"%{0,2}(?!\d)[\w*]+(?:\.(?!\d)[\w*]+|\[-?\d+\])*"
_HELP = re.compile(rf"{_NAME}\?{{1,2}}|\?{{1,2}}\s*{_NAME}")
_COMMAND = re.compile(r"(?:!!?|%%?|[,;/])\s*[^\s!?].*", re.DOTALL)


class _Command(EscapedCommand):
    """``%magic``, ``!command`` and ``?name``."""

    @classmethod
    def find(cls, tokens_by_line: Any) -> Any:
        found = super().find(tokens_by_line)  # type: ignore[no-untyped-call]  # as all of IPython
        return _if_meant(found, tokens_by_line)


class _HelpEnd(HelpEnd):
    """``name?``."""

    @classmethod
    def find(cls, tokens_by_line: Any) -> Any:
        found = super().find(tokens_by_line)  # type: ignore[no-untyped-call]  # as all of IPython
        return _if_meant(found, tokens_by_line)


def transform(source: str) -> str:
    """Return the plain Python that IPython would run for a cell."""
    manager = TransformerManager()  # type: ignore[no-untyped-call]
    meant = {EscapedCommand: _Command, HelpEnd: _HelpEnd}
    manager.token_transformers = [meant.get(kind, kind) for kind in manager.token_transformers]
    return str(manager.transform_cell(source))


def _if_meant(found: Any, tokens_by_line: Any) -> Any:
    """Return the transformer for a line that is help or a command; None for prose."""
    if found is None:
        return None
    tokens = (token for line in tokens_by_line for token in line)
    physical = next(token.line for token in tokens if token.start[0] - 1 == found.start_line)
    line = physical[found.start_col :].strip()
    return found if _HELP.fullmatch(line) or _COMMAND.fullmatch(line) else None
