"""Requests of a few characters that stand for much in the host's memory, or for long work.

The forms are made on the host beforehand, with the libraries that are there; the cell only sends
them. Whatever the host answers is right as long as it goes on and stays small.
"""

import base64
import io
import json
import time
import zlib
from typing import Any

from attacks.score import either, grew, host_opened, stood_still
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


def _table_with_a_path(stage: Stage) -> dict[str, Any]:
    """Make a table whose metadata name a file as a time zone; the file is watched."""
    try:
        import pandas as pd
        import pyarrow as pa
    except ImportError:
        raise NotHere("pyarrow is not there") from None
    path = stage.home / "private.zone"
    path.write_bytes(b"TZif2" + bytes(39))
    zoned = pa.array([1], pa.timestamp("ns", tz="UTC"))
    pa.table({"a": zoned}).to_pandas()  # what the libraries open once is not what is measured
    stage.watch(path)
    column = {
        "name": "a", "field_name": "a", "pandas_type": "datetimetz", "metadata": None,
        "numpy_type": f"datetime64[ns, dateutil/{path}]",
    }  # fmt: skip
    stated = {"index_columns": [], "column_indexes": [], "columns": [column]}
    table = pa.table({"a": zoned}).replace_schema_metadata({b"pandas": json.dumps(stated).encode()})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    del pd
    return {"table": base64.b64encode(sink.getvalue()).decode()}


@attack("read", host_opened, before=_table_with_a_path, no_control=ALONE["no_control"])
def table_that_names_a_file_as_its_time_zone(c):
    """A table whose metadata name a closed file as a time zone: the host is to open it"""
    kernel = get_ipython().kernel  # noqa: F821 - IPython's
    table = {"$": "table", "arrow": c.table}
    calls = [{"name": "echo", "args": [table], "kwargs": {}}]
    prompt = "kernel-agent/1 " + json.dumps({"id": int(time.time() * 1000), "calls": calls})
    identity = kernel._get_shell_context_var(kernel._shell_parent_ident)
    kernel.session.send(
        kernel.stdin_socket, "input_request", {"prompt": prompt},
        kernel.get_parent("shell"), ident=identity,
    )  # fmt: skip
    kernel.stdin_socket.poll(15_000)
    _, reply = kernel.session.recv(kernel.stdin_socket)
    told = json.loads(reply["content"]["value"])["results"][0]
    return f"a value came back: {told['value']}"[:200] if told["ok"] else ""


def _table_of_attributes(stage: Stage) -> dict[str, Any]:
    """Make a table with 1.5 million lists in its metadata; packed, since a cell brings it."""
    try:
        import pandas as pd
        import pyarrow as pa
    except ImportError:
        raise NotHere("pyarrow is not there") from None
    pa.table({"a": ["x"]}).to_pandas()
    del pd
    lists = ", ".join(["[]"] * 1_500_000)
    stated = f'{{"index_columns": [], "columns": [], "attributes": {{"x": [{lists}]}}}}'
    table, sink = pa.table({"a": [1]}).replace_schema_metadata({b"pandas": stated}), io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    packed = zlib.compress(base64.b64encode(sink.getvalue()))
    return {"packed": base64.b64encode(packed).decode()}


@attack("host-resource", EFFECT, before=_table_of_attributes, **ALONE)
def a_table_with_a_million_attributes(c):
    """A table of one number with 1.5 million lists in its metadata, where pandas has `attrs`"""
    import base64
    import zlib

    kernel = get_ipython().kernel  # noqa: F821 - IPython's
    arrow = zlib.decompress(base64.b64decode(c.packed)).decode()
    calls = [{"name": "echo", "args": [{"$": "table", "arrow": arrow}], "kwargs": {}}]
    prompt = "kernel-agent/1 " + json.dumps({"id": int(time.time() * 1000), "calls": calls})
    identity = kernel._get_shell_context_var(kernel._shell_parent_ident)
    kernel.session.send(
        kernel.stdin_socket, "input_request", {"prompt": prompt},
        kernel.get_parent("shell"), ident=identity,
    )  # fmt: skip
    kernel.stdin_socket.poll(50_000)
    _, reply = kernel.session.recv(kernel.stdin_socket)
    return reply["content"]["value"][:200]


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
