"""Pictures that a cell showed, made small for a model that accepts pictures. Pure.

How a picture of unknown origin is opened is in :mod:`kernel_agent.safe.images`.
"""

from __future__ import annotations

from typing import Any

from kernel_agent.records import Image
from kernel_agent.safe import FORMATS, TooLarge, Unreadable, one_line, reencode

MAX_SIDE = 1024  # pixels: six small charts in one can be read, for about 1,000 tokens
TITLE_CHARS = 200
MAX_TITLES = 12


def figure(media_type: str, data: Any, *, name: str, titles: Any) -> tuple[str, Image | None]:
    """Return a line that describes a picture, and the picture for a model that can look at it.

    Parameters
    ----------
    media_type
        ``image/png`` or ``image/jpeg``.
    data
        Base64 text, as in a notebook output; None comes back with the line when it is not.
    name
        What the line calls it.
    titles
        What the kernel says its titles are; anything.
    """
    kind = FORMATS[media_type]
    named = [t for t in titles if isinstance(t, str)] if isinstance(titles, list) else []
    title = one_line("; ".join(filter(str.strip, named[:MAX_TITLES])), TITLE_CHARS)
    about = f': "{title}"' if title else ""
    try:
        shown, width, height = reencode(media_type, data, max_side=MAX_SIDE)
    except TooLarge as error:
        size = f" of {error.size[0]}x{error.size[1]}" if error.size else ""
        return f"[{name}, {kind}{size}, too large to look at{about}]", None
    except Unreadable as error:
        return f"[{name}, {error}{about}]", None
    image = Image(media_type=media_type, data=shown.data, width=shown.width, height=shown.height)
    return f"[{name}, {kind} {width}x{height}{about}]", image
