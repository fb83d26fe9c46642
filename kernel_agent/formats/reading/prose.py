"""Tell prose from code, and strip role labels.

Used for what stands around the blocks of a reply: never to change code.
"""

from __future__ import annotations

import keyword
import re
from itertools import pairwise

_WORD = re.compile(r"[A-Za-z]+(?:'(?:s|t|re|ve|ll|d|m))?")
_NOT_PROSE = frozenset([*keyword.kwlist, *keyword.softkwlist, "print", "exec", "async"])


def is_prose(line: str) -> bool:
    """Whether a line at the margin is a sentence: two names side by side are never Python."""
    if not line[:1].isalpha() and not re.match(r"[-*\d]+[.)]? +[A-Za-z*]", line):
        return False
    head = re.split(r"[\"#(\[{=`]", line, maxsplit=1)[0]
    words = head.split()
    if len(words) < 3 or words[0] in _NOT_PROSE:
        return False
    return any(
        _WORD.fullmatch(a)
        and _WORD.fullmatch(b.rstrip(".,:;!?"))
        and not {a, b.rstrip(".,:;!?")} & _NOT_PROSE
        for a, b in pairwise(words)
    )


_LABEL = re.compile(
    r"^[^\S\n]*(?:(?:Assistant|AI)[^\S\n]*[:\uff1a][^\S\n]*)+"
    r"|</?(?:thoughts?|analysis)>|^[^\S\n]*</?(?:execute|code|python|py|solution|answer)>[^\S\n]*$"
    r"|^[^\S\n]*(?:Thoughts?)[^\S\n]*:[^\S\n]*|^python3?[^\S\n]*$",
    re.MULTILINE | re.IGNORECASE,
)


_ANSWER = re.compile(r"</?(?:solution|answer)>", re.IGNORECASE)


def without_first_label(text: str) -> str:
    """Return undelimited text without the role label at its start; code is left as it is.

    The tag of an answer stays: what follows it is the answer, and no bare code.
    """
    text = text.strip()
    label = _LABEL.match(text)
    answers = label is not None and _ANSWER.match(label[0].strip())
    return text[label.end() :].strip() if label and not answers else text


def without_answer_tags(text: str) -> str:
    """Return words without the tags that say that they are the answer."""
    return _ANSWER.sub("", text).strip()


def without_labels(prose: str) -> str:
    """Return prose without role labels, thought tags and the blank lines that they leave."""
    lines = [line.rstrip() for line in _LABEL.sub("", prose).strip().splitlines()]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines))
