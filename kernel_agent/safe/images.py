"""Re-encode pictures from a kernel: nothing but pixels goes on. Pure.

The bytes come from a hostile kernel and will be decoded by a browser, an editor or a model's
endpoint. So only PNG and JPEG are opened, the size that the header states is checked before a pixel
is decoded, and what is shown is what our own encoder wrote: no text chunk, no profile, no second
frame, no bytes behind the end, no other format behind the name.
"""

from __future__ import annotations

import base64
import binascii
import io
import struct
import warnings
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = {"image/png": "PNG", "image/jpeg": "JPEG"}
MAX_PIXELS = 32_000_000  # 128 MB once decoded; Pillow's own guard is higher
MAX_BASE64 = 24_000_000  # characters
JPEG_QUALITY = 90

# Everything that Pillow is known to raise for damaged or hostile data.
_BROKEN = (OSError, ValueError, SyntaxError, EOFError, OverflowError, IndexError, KeyError,
           TypeError, MemoryError, AttributeError, RuntimeError, struct.error,
           zlib.error)  # fmt: skip


class Unreadable(ValueError):
    """The data is not a picture of the stated kind."""


class TooLarge(Unreadable):
    """A picture with more pixels or bytes than are decoded; ``size`` is what its header states."""

    def __init__(self, size: tuple[int, int] | None = None) -> None:
        super().__init__("too large to look at")
        self.size = size


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A picture as we encoded it: base64, and its size in pixels."""

    media_type: str
    data: str
    width: int
    height: int


def reencode(media_type: str, data: Any, *, max_side: int | None = None) -> tuple[Shown, int, int]:
    """Return a picture encoded anew, and the width and height that it had.

    Parameters
    ----------
    media_type
        ``image/png`` or ``image/jpeg``.
    data
        Base64 text, as in a notebook output; anything else is unreadable.
    max_side
        Pixels to which a larger picture is scaled down; None keeps its size.

    Raises
    ------
    TooLarge
        It is not decoded.
    Unreadable
        It is not a picture of that kind.
    """
    kind = FORMATS[media_type]
    if not isinstance(data, str):
        raise Unreadable(f"not a readable {kind}")
    if len(data) > MAX_BASE64:
        raise TooLarge
    try:
        raw = base64.b64decode("".join(data.split()), validate=True)
        (width, height), picture = _pixels(raw, kind, max_side)
        return _encode(picture, media_type), width, height
    except Unreadable:
        raise
    except (binascii.Error, *_BROKEN):
        raise Unreadable(f"not a readable {kind}") from None


def _pixels(raw: bytes, kind: str, max_side: int | None) -> tuple[tuple[int, int], Image]:
    from PIL import Image as Pillow

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow warns of large pictures; the limit here is lower
        try:
            opened = Pillow.open(io.BytesIO(raw), formats=(kind,))
        except Pillow.DecompressionBombError:
            stated = struct.unpack(">II", raw[16:24]) if kind == "PNG" else None
            raise TooLarge(stated) from None
        size = opened.size
        if size[0] * size[1] > MAX_PIXELS:
            raise TooLarge(size)
        if max_side is not None:
            # draft() lets a JPEG be decoded at a fraction of its size.
            opened.draft("RGB", (max_side, max_side))
        transparent = opened.mode in ("RGBA", "LA", "PA") or "transparency" in opened.info
        picture = opened.convert("RGBA" if kind == "PNG" and transparent else "RGB")
    if max_side is not None:
        picture.thumbnail((max_side, max_side))
    return size, picture


def _encode(picture: Image, media_type: str) -> Shown:
    buffer = io.BytesIO()
    picture.info = {}
    picture.save(buffer, format=FORMATS[media_type], quality=JPEG_QUALITY)
    data = base64.b64encode(buffer.getvalue()).decode("ascii")
    return Shown(media_type=media_type, data=data, width=picture.width, height=picture.height)
