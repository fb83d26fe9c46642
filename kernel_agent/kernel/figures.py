"""Pictures that a cell showed, made small and safe for a model that accepts pictures.

Pure. The bytes come from a hostile kernel: only PNG and JPEG are opened, the size that the header
states is checked before a pixel is decoded, and what goes on is encoded anew, so that nothing
but pixels goes on.
"""

from __future__ import annotations

import base64
import binascii
import io
import struct
import warnings
import zlib
from typing import TYPE_CHECKING, Any

from kernel_agent.records import Image

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

MAX_SIDE = 768  # pixels; what endpoints scale pictures to before they count them
MAX_PIXELS = 32_000_000  # 128 MB once decoded; Pillow's own guard is higher
MAX_BASE64 = 24_000_000  # characters
FORMATS = {"image/png": "PNG", "image/jpeg": "JPEG"}

# Everything that Pillow is known to raise for damaged or hostile data.
_BROKEN = (OSError, ValueError, SyntaxError, EOFError, OverflowError, IndexError, KeyError,
           TypeError, MemoryError, struct.error, zlib.error)  # fmt: skip


def figure(media_type: str, data: Any) -> tuple[str, Image | None]:
    """Return a line that describes a picture, and the picture for a model that can look at it.

    Parameters
    ----------
    media_type
        ``image/png`` or ``image/jpeg``.
    data
        Base64 text, as in a notebook output; None comes back with the line when it is not.
    """
    kind = FORMATS[media_type]
    if not isinstance(data, str) or len(data) > MAX_BASE64:
        return f"[figure: a {kind} that is too large to look at]", None
    try:
        raw = base64.b64decode("".join(data.split()), validate=True)
        size, small = _smaller(raw, kind)
    except binascii.Error:
        return f"[figure: not a readable {kind}]", None
    except _BROKEN:
        return f"[figure: not a readable {kind}]", None
    line = f"[figure {size[0]}x{size[1]} {kind}]"
    if small is None:
        return f"{line[:-1]}, too large to look at]", None
    return line, Image(
        media_type=media_type, data=_encoded(small, kind), width=small.width, height=small.height
    )


def _smaller(raw: bytes, kind: str) -> tuple[tuple[int, int], Picture | None]:
    """Return the size that a picture has, and its pixels, downscaled; None above the limit."""
    from PIL import Image as Pillow

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow warns of large pictures; the limit here is lower
        try:
            opened = Pillow.open(io.BytesIO(raw), formats=(kind,))
        except Pillow.DecompressionBombError:
            return struct.unpack(">II", raw[16:24]) if kind == "PNG" else (0, 0), None
        size = opened.size
        if size[0] * size[1] > MAX_PIXELS:
            return size, None
        # draft() lets a JPEG be decoded at a fraction of its size.
        opened.draft("RGB", (MAX_SIDE, MAX_SIDE))
        transparent = opened.mode in ("RGBA", "LA", "PA") or "transparency" in opened.info
        small = opened.convert("RGBA" if kind == "PNG" and transparent else "RGB")
    small.thumbnail((MAX_SIDE, MAX_SIDE))
    return size, small


def _encoded(picture: Picture, kind: str) -> str:
    buffer = io.BytesIO()
    picture.info = {}
    picture.save(buffer, format=kind)
    return base64.b64encode(buffer.getvalue()).decode("ascii")
