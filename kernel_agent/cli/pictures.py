"""Pictures in a terminal that shows them: kitty's graphics, or iTerm's inline images.

The environment says which a terminal has; inside tmux and screen neither arrives. The pictures are
those that were encoded anew for the model (:mod:`kernel_agent.safe.images`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal, TypeAlias

from kernel_agent.records import Image

Way: TypeAlias = Literal["kitty", "iterm"]

CHUNK = 4096  # characters of base64 that kitty takes at a time
COLUMNS = 60  # at most so wide is a picture shown


def way(environ: Mapping[str, str] = os.environ) -> Way | None:
    """Return how the terminal shows pictures; None where it does not.

    Examples
    --------
    >>> way({"TERM": "xterm-kitty"}), way({"TERM_PROGRAM": "iTerm.app"}), way({"TERM": "xterm"})
    ('kitty', 'iterm', None)
    """
    if environ.get("TMUX") or environ.get("TERM", "").startswith(("screen", "tmux")):
        return None
    program = environ.get("TERM_PROGRAM", "")
    kitty = environ.get("TERM") in {"xterm-kitty", "xterm-ghostty"} or program == "ghostty"
    if kitty or environ.get("KITTY_WINDOW_ID"):
        return "kitty"
    iterm = program in {"iTerm.app", "WezTerm"} or environ.get("LC_TERMINAL") == "iTerm2"
    return "iterm" if iterm else None


def escapes(picture: Image, way: Way, width: int) -> str:
    """Return the escape sequences that show a picture, with the end of its line.

    Parameters
    ----------
    picture
        A JPEG is left out where only PNG can be shown.
    way
        What the terminal has.
    width
        Of the terminal, in columns.
    """
    columns = max(min(COLUMNS, width - 4), 1)
    if way == "iterm":
        about = f"inline=1;width={columns};preserveAspectRatio=1"
        return f"\x1b]1337;File={about}:{picture.data}\x07\n"
    if picture.media_type != "image/png":
        return ""
    pieces = [picture.data[at : at + CHUNK] for at in range(0, len(picture.data), CHUNK)]
    heads = [f"a=T,f=100,q=2,c={columns},", *[""] * (len(pieces) - 1)]
    more = [1] * (len(pieces) - 1) + [0]
    sent = zip(heads, more, pieces, strict=True)
    return "".join(f"\x1b_G{head}m={m};{piece}\x1b\\" for head, m, piece in sent) + "\n"
