"""The search for planted keys in the words of level ``interpreter``, which has few.

No memory, frames, processes or sockets can be named there: the search asks for the environment, for
files by path, and for what tools answer. See ``key_search.py``.
"""

# ruff: noqa: F821, PLW0640, B023, SIM115, PTH
# %% Whatever gives text is looked at whole
import json
import os
import sys
from pathlib import Path

HITS = []
REFUSED = {}
LOOKED = {}
table = {n: TOLD["table"][n * 2 : n * 2 + 2] for n in range(256)}
needles = TOLD["needles"]


def look(place, where, text):
    LOOKED[place] = LOOKED.get(place, 0) + len(text)
    behind = "".join([table[b] for b in text.encode("utf-8")])
    for form in needles:
        at = behind.find(needles[form])
        if at >= 0:
            HITS.append([place, where, form, behind[max(0, at - at % 2 - 160) : at + 240]])


def attempt(place, where, function):
    try:
        look(place, where, repr(function()))
    except Exception as error:
        look(place, "error of " + where, repr(error))
        name = type(error).__name__
        REFUSED[name] = REFUSED.get(name, 0) + 1


# %% The environment, the system, and files by path
attempt("environment", "os.environ", lambda: dict(os.environ))
for name in TOLD["variables"]:
    attempt("environment", name, lambda: os.getenv(name))
attempt("system", "argv", lambda: sys.argv)
attempt("system", "path", lambda: sys.path)
attempt("system", "modules", lambda: sys.modules)
for name in (
    TOLD["files"]
    + TOLD["in_folder"]
    + [
        "trace.jsonl",
        "run.ipynb",
        "/proc/self/environ",
        "/proc/self/mem",
        "/proc/self/cmdline",
        "/proc/1/environ",
        "/etc/passwd",
    ]
):
    attempt("files", name, lambda: open(name).read())
    attempt("files", name, lambda: Path(name).read_text())
    attempt("files", name, lambda: Path(name).read_bytes())
    attempt("files", name, lambda: Path("data/../../../../../../../.." + name).read_text())
for name in ["/", ".", "..", "data", "/proc", "/tmp", "/dev/shm"]:
    attempt("files", name, lambda: os.listdir(name))
    attempt("files", name, lambda: [str(path) for path in Path(name).iterdir()])

# %% What the host answers
ODD = [
    [],
    ["apples"],
    ["no such product"],
    [None],
    [-1],
    [[1, 2]],
    [{"a": {"b": 1}}],
    ["apples", "pears"],
    ["{0.__globals__}"],
    ["%s%n"],
    [True],
]
for made in [price, stock, shop_page, sold, refused, settings, env]:
    look("broker", "repr", repr(made))
    attempt("broker", "vars", lambda: made.__globals__)
    attempt("broker", "closure", lambda: made.__closure__)
    for arguments in ODD:
        attempt("broker", repr(made) + repr(arguments), lambda: made(*arguments))
    attempt("broker", "keywords", lambda: made(product="apples", key=1))

# %% The report
final_answer(
    json.dumps(
        {
            "hits": HITS,
            "bytes": LOOKED,
            "refused": list(REFUSED.items()),
            "incomplete": [],
            "seconds": {},
        }
    )
)
