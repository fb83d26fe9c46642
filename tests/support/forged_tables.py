"""Forge tables whose texts name a file, and read them: ``python -m support.forged_tables COUNT``.

Prints one JSON object: how many were read and refused, and every path that was opened meanwhile
other than tables of time zones. For a process of its own, since an audit hook stays for good; a
file ``FROM HERE`` is looked for when the libraries are warm, for who watches from outside.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import random
import sys
import tempfile
import zoneinfo
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from kernel_agent.inkernel import decode, encode
from kernel_agent.safe import room_for

Chance = random.Random
FROM_HERE = Path("/nonexistent/FROM HERE")


def spelled(path: str, chance: Chance) -> str:
    """Return one of the ways in which a type of pandas or a zone may name a file."""
    return chance.choice((
        f"dateutil/{path}", path, f"../../../../..{path}", f"pytz/{path}", f"file://{path}",
        f"zoneinfo/{path}", "tzlocal()", "dateutil/", "localtime", f":{path}", f"{path}\0UTC",
        f"UTC/../../..{path}", "posixrules", "Europe/Zurich", "+05:30",
    ))  # fmt: skip


def typed(path: str, chance: Chance) -> str:
    """Return the name of a type that names a file."""
    zone = spelled(path, chance)
    return chance.choice((
        f"datetime64[ns, {zone}]", f"datetime64[us, {zone}]", f"timestamp[ns, tz={zone}][pyarrow]",
        f"interval[datetime64[ns, {zone}], right]", f"Sparse[datetime64[ns, {zone}]]",
        f"period[{zone}]", f"category[{zone}]", f"dictionary<values=timestamp[ns, {zone}]>", zone,
    ))  # fmt: skip


def metadata(path: str, chance: Chance) -> dict[bytes, bytes]:
    """Return metadata as pandas writes them, in which types, zones and labels name a file."""
    column = {
        "name": "a", "field_name": chance.choice(("a", "0")), "numpy_type": typed(path, chance),
        "pandas_type": chance.choice(("datetimetz", "datetime", "categorical", "unicode")),
        "metadata": {"timezone": spelled(path, chance), "num_categories": 1},
    }  # fmt: skip
    stated = {
        "columns": [column], "index_columns": chance.choice(([], ["a"], ["0"])),
        "column_indexes": chance.choice(([], [column], [column, column])),
        "attributes": {"a": path}, "creator": {"library": path}, "pandas_version": path,
    }  # fmt: skip
    if chance.random() < 0.5:
        plain = {"columns": [{**column, "metadata": None, "field_name": "a"}], "index_columns": []}
        return {b"pandas": json.dumps({**plain, "column_indexes": []}).encode()}
    kind = chance.choice((b"pandas.period", b"pandas.interval", b"arrow.py_extension_type"))
    return {
        b"pandas": json.dumps(stated).encode(), b"ARROW:extension:name": kind,
        b"ARROW:extension:metadata": json.dumps({
            "freq": spelled(path, chance), "subtype": typed(path, chance), "closed": path,
        }).encode(),
    }  # fmt: skip


def arrow(path: str, chance: Chance) -> str:
    """Return a stream in base64 with forged metadata or zones at one of its places."""
    zone = spelled(path, chance).replace("\0", "")
    zoned = pa.timestamp("ns", tz=zone)
    kind = chance.choice((
        pa.int64(), pa.timestamp("ns", tz="UTC"), zoned, pa.list_(zoned), pa.struct([("a", zoned)]),
        pa.dictionary(pa.int32(), zoned), pa.string(), pa.list_(pa.field("x", pa.int64(), True,
        metadata(path, chance))),
    ))  # fmt: skip
    field = pa.field("a", kind, metadata=metadata(path, chance) if chance.random() < 0.5 else None)
    schema = pa.schema([field], metadata=metadata(path, chance))
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, schema) as writer, contextlib.suppress(pa.ArrowException):
        held: Any = [None] if chance.random() < 0.5 or kind not in (pa.int64(), zoned) else [1]
        writer.write_table(pa.table([pa.array(held, kind)], schema=schema))
    data = bytearray(sink.getvalue())
    for _ in range(chance.choice((0, 0, 0, 3))):
        data[chance.randrange(len(data))] = chance.randrange(256)
    return base64.b64encode(data).decode()


def frame(path: str, chance: Chance) -> dict[str, Any]:
    """Return what stands beside a stream, with the file's name in its texts."""
    name = typed(path, chance)
    return chance.choice((
        {}, {"types": {name: [0]}}, {"types": {"arrow": [0]}}, {"index": {"levels": 1}},
        {"index": {"levels": 1, "names": [name]}}, {"labels": {"items": [path], "names": [name]}},
        {"labels": {"table": {"$": "table", "arrow": arrow(path, chance)}}},
        {"attrs": {"a": {"$": "table", "arrow": arrow(path, chance), "frame": {"types": {name:
        [0]}}}}}, {"index": {"range": [0, 1, path]}}, {"index": name, "types": name},
    ))  # fmt: skip


def forged(path: str, chance: Chance) -> dict[str, Any]:
    """Return a forged table or series as a kernel sends it."""
    form = {"$": chance.choice(("table", "series")), "arrow": arrow(path, chance)}
    return form | ({"frame": frame(path, chance)} if chance.random() < 0.7 else {})


def warm() -> None:
    """Read tables of known zones: what the libraries open once is no answer to a forgery."""
    for zone in ("UTC", "Europe/Zurich", "+05:30"):
        table = pd.DataFrame({"a": pd.date_range("2024", periods=2, tz=zone), "b": "x"})
        table = table.astype({"b": "category"}).set_index("b", append=True)
        print(decode(encode(table)), decode(encode(table["a"])), file=sys.stderr)
    with contextlib.suppress(ValueError):
        decode({"$": "table", "arrow": "AAAA"})


def main() -> None:
    """Read so many forged tables; print what was opened."""
    count, opened, told = int(sys.argv[1]), [], {"read": 0, "refused": 0}
    zones = tuple(str(Path(place).resolve()) for place in zoneinfo.TZPATH)
    with tempfile.TemporaryDirectory() as folder:
        named = Path(folder) / "private.zone"
        named.write_bytes(b"TZif2" + bytes(39))
        chance = Chance(5)
        forms = [forged(str(named), chance) for _ in range(count)]
        warm()
        watching = True
        sys.addaudithook(
            lambda event, found: (
                opened.append(str(found[0])) if watching and event == "open" else None
            )
        )
        with contextlib.suppress(OSError):
            FROM_HERE.open()
        for form in forms:
            try:
                decode(form, room_for(form))
                told["read"] += 1
            except ValueError:
                told["refused"] += 1
        watching = False
    others = [path for path in opened[1:] if not path.startswith(zones) or ".." in path]
    print(json.dumps({**told, "opened": others}))


if __name__ == "__main__":
    main()
