"""Whether a reply proves by itself that it is whole, where its endpoint does not say so.

Some endpoints never send a reason for a reply's end; others leave it out when they ended the reply
in the middle. What runs of such a reply must be closed in its own notation: a block in its fence, a
call in its object or tag. Bare code closes nothing: ``share = n / 24`` may be half of
``share = n / 240``.
"""

from __future__ import annotations

import re

from kernel_agent.errors import FormatError
from kernel_agent.formats.fenced import readable
from kernel_agent.formats.reading.objects import strict
from kernel_agent.formats.reading.scanner import find_blocks
from kernel_agent.records import Reply

_CLOSING_TAG = re.compile(r"</[\w:.-]{1,60}>\s*\Z")


def closes(reply: Reply) -> bool:
    r"""Whether a reply closes what it opened; of plain text it says no.

    >>> closes(Reply(content="So:\n```python\nprint(1)\n```")), closes(Reply(content="print(1)"))
    (True, False)
    """
    if reply.tool_calls:
        return all(isinstance(strict(call.arguments), dict) for call in reply.tool_calls)
    text = reply.content.strip()
    if _CLOSING_TAG.search(text) or isinstance(strict(text), dict):
        return True
    try:
        found = find_blocks(readable(text))
    except FormatError:
        return False
    chosen = found.chosen
    return found.complete is not None or (chosen is not None and not chosen.open)
