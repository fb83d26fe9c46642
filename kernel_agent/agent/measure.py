"""How long messages are, in tokens: estimated, and corrected by what the endpoint counts.

Text is estimated by its bytes, a picture at what it usually costs. Both are corrected apart: what a
request with pictures costs beyond its text is the pictures', however dear they are, and makes no
text any longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernel_agent.records import Message

BYTES_PER_TOKEN = 3.5  # of UTF-8; on the careful side for English, code and Chinese alike
MESSAGE_TOKENS = 4  # a role and its marks
PICTURE_TOKENS = 1_000  # about what endpoints charge for a picture of 1,024 x 768 pixels
MAX_PICTURE_TOKENS = 20_000  # some charge 14,000 with small models
CALIBRATE_FROM = 2_000  # tokens; below, what an endpoint adds to every request weighs too much
MAX_RATIO = 8.0


@dataclass(frozen=True)
class Size:
    """Estimated tokens of the text of messages, and the number of their pictures."""

    text: int = 0
    pictures: int = 0

    def __add__(self, other: Size) -> Size:
        return Size(self.text + other.text, self.pictures + other.pictures)


def size_of(messages: Sequence[Message]) -> Size:
    """Return the size of messages."""
    texts = (t for m in messages for t in (m.content, *(c.arguments for c in m.tool_calls)))
    size = sum(map(_bytes, texts))
    pictures = sum(len(message.images) for message in messages)
    return Size(int(size / BYTES_PER_TOKEN) + MESSAGE_TOKENS * len(messages), pictures)


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


class Measure:
    """Turns sizes into tokens, as the endpoint has counted them so far."""

    def __init__(self) -> None:
        self.ratio = self._least_ratio = 1.0
        """Real tokens for an estimated one of text."""
        self.picture: float = PICTURE_TOKENS
        """Tokens of a picture."""

    def tokens(self, size: Size) -> float:
        """Return the length of messages in tokens."""
        return size.text * self.ratio + size.pictures * self.picture

    def text_tokens(self, texts: Sequence[str]) -> float:
        """Return the length of texts in tokens."""
        return sum(map(_bytes, texts)) / BYTES_PER_TOKEN * self.ratio

    def characters(self, texts: Sequence[str], room: float) -> int:
        """Return the characters to which each of the texts is cut, so that all fit the room."""
        share = max(room, 0) / max(self.text_tokens(texts), 1)
        return int(share * sum(map(len, texts)) / max(len(texts), 1))

    def correct(self, size: Size, counted: int) -> None:
        """Take an endpoint's count of messages of this size for right."""
        if size.text + size.pictures * PICTURE_TOKENS < CALIBRATE_FROM:
            return
        if size.pictures:
            self.picture = self._price(size, counted)
            over = counted - self.tokens(size)
            self.ratio += max(over, 0) / size.text
        else:
            self.ratio = counted / size.text
        self.ratio = min(max(self.ratio, self._least_ratio), MAX_RATIO)

    def prove(self, size: Size, counted: int) -> None:
        """Take an endpoint's count for the least that such messages have, from now on."""
        if size.pictures:
            self.picture = max(self.picture, self._price(size, counted))
        text = counted - size.pictures * self.picture
        self._least_ratio = min(max(text / size.text, self._least_ratio), MAX_RATIO)
        self.ratio = max(self.ratio, self._least_ratio)

    def _price(self, size: Size, counted: int) -> float:
        """Return what a picture costs, if all that is not text is the pictures'."""
        rest = (counted - size.text * self.ratio) / size.pictures
        return min(max(rest, PICTURE_TOKENS), MAX_PICTURE_TOKENS)
