"""Pictures that a cell showed, made small for a model that accepts pictures. Pure.

How a picture of unknown origin is opened is in :mod:`kernel_agent.safe.images`.
"""

from __future__ import annotations

from typing import Any

from kernel_agent.records import Image
from kernel_agent.safe import FORMATS, TooLarge, Unreadable, reencode

MAX_SIDE = 768  # pixels; what endpoints scale pictures to before they count them


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
    try:
        shown, width, height = reencode(media_type, data, max_side=MAX_SIDE)
    except TooLarge as error:
        size = f" {error.size[0]}x{error.size[1]}" if error.size else ": a"
        comma = "," if error.size else " that is"
        return f"[figure{size} {kind}{comma} too large to look at]", None
    except Unreadable as error:
        return f"[figure: {error}]", None
    image = Image(media_type=media_type, data=shown.data, width=shown.width, height=shown.height)
    return f"[figure {width}x{height} {kind}]", image
