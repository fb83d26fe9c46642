"""Requests of a few characters that stand for much in the host's memory, or for long work.

The forms are made on the host beforehand, with the libraries that are there; the cell only sends
them. Whatever the host answers is right as long as it goes on and stays small.
"""

import base64
import io
import json
import time
from typing import Any

from attacks.score import either, grew, stood_still
from attacks.stage import NotHere, Stage
from attacks.words import attack

ALONE: dict[str, Any] = {
    "no_control": "the host's half of the session holds at every level",
    "own_kernel": True,
    "timeout_s": 60,
}
EFFECT = either(stood_still(), grew())


def _null_table(stage: Stage) -> dict[str, Any]:
    """Make a table of 49 million nulls, which has no bytes, and one that is just allowed."""
    try:
        import pandas as pd
        import pyarrow as pa
    except ImportError:
        raise NotHere("pyarrow is not there") from None
    pa.table({"a": ["x"]}).to_pandas()  # the libraries are not what is measured
    del pd
    return {"tables": [_stream(49_000_000), _stream(3_000_000)]}


def _stream(rows: int) -> str:
    import pyarrow as pa

    table, sink = pa.table({"a": pa.nulls(rows)}), io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return base64.b64encode(sink.getvalue()).decode()


def _one_colour(stage: Stage) -> dict[str, Any]:
    from PIL import Image

    made = []
    for side in (7000, 3900):
        sink = io.BytesIO()
        Image.new("RGB", (side, side), (1, 2, 3)).save(sink, "png")
        made.append(base64.b64encode(sink.getvalue()).decode())
    return {"pictures": made}


@attack("host-resource", EFFECT, before=_null_table, **ALONE)
def tables_of_nulls(c):
    """Four tables of 49 million nulls each, in a request of 1,400 characters"""
    kernel = get_ipython().kernel  # noqa: F821 - IPython's
    table = {"$": "table", "arrow": c.tables[0]}
    calls = [{"name": "echo", "args": [[table] * 4], "kwargs": {}}]
    prompt = "kernel-agent/1 " + json.dumps({"id": int(time.time() * 1000), "calls": calls})
    identity = kernel._get_shell_context_var(kernel._shell_parent_ident)
    kernel.session.send(
        kernel.stdin_socket, "input_request", {"prompt": prompt},
        kernel.get_parent("shell"), ident=identity,
    )  # fmt: skip
    kernel.stdin_socket.poll(50_000)
    _, reply = kernel.session.recv(kernel.stdin_socket)
    return reply["content"]["value"][:200]


@attack("host-resource", EFFECT, before=_null_table, **ALONE)
def tables_of_nulls_for_nobody(c):
    """Three tables of 49 million nulls each, to a tool that does not exist"""
    kernel = get_ipython().kernel  # noqa: F821 - IPython's
    table = {"$": "table", "arrow": c.tables[0]}
    calls = [{"name": "nobody", "args": [[table] * 3], "kwargs": {}}]
    prompt = "kernel-agent/1 " + json.dumps({"id": int(time.time() * 1000), "calls": calls})
    identity = kernel._get_shell_context_var(kernel._shell_parent_ident)
    kernel.session.send(
        kernel.stdin_socket, "input_request", {"prompt": prompt},
        kernel.get_parent("shell"), ident=identity,
    )  # fmt: skip
    kernel.stdin_socket.poll(50_000)
    _, reply = kernel.session.recv(kernel.stdin_socket)
    return reply["content"]["value"][:200]


@attack("host-resource", EFFECT, before=_null_table, **ALONE)
def many_requests_below_the_bound(c):
    """Requests side by side, each of a table that is just allowed, and the next cell's"""
    kernel = get_ipython().kernel  # noqa: F821 - IPython's
    identity = kernel._get_shell_context_var(kernel._shell_parent_ident)
    table = {"$": "table", "arrow": c.tables[1]}
    first = int(time.time() * 1000)
    for number in range(first, first + 30):
        calls = [{"name": "echo", "args": [table], "kwargs": {}}]
        prompt = "kernel-agent/1 " + json.dumps({"id": number, "calls": calls})
        kernel.session.send(
            kernel.stdin_socket, "input_request", {"prompt": prompt},
            kernel.get_parent("shell"), ident=identity,
        )  # fmt: skip
    for _ in range(30):
        if not kernel.stdin_socket.poll(20_000):
            return "no answer"
        kernel.session.recv(kernel.stdin_socket)
    return "all were answered"


@attack("host-resource", EFFECT, before=_one_colour, **ALONE)
def pictures_in_one_colour(c):
    """24 pictures of 49 million pixels in one colour each, in one request"""
    kernel = get_ipython().kernel  # noqa: F821 - IPython's
    picture = {"$": "image", "png": c.pictures[0]}
    calls = [{"name": "echo", "args": [[picture] * 24], "kwargs": {}}]
    prompt = "kernel-agent/1 " + json.dumps({"id": int(time.time() * 1000), "calls": calls})
    identity = kernel._get_shell_context_var(kernel._shell_parent_ident)
    kernel.session.send(
        kernel.stdin_socket, "input_request", {"prompt": prompt},
        kernel.get_parent("shell"), ident=identity,
    )  # fmt: skip
    kernel.stdin_socket.poll(50_000)
    _, reply = kernel.session.recv(kernel.stdin_socket)
    return reply["content"]["value"][:200]
