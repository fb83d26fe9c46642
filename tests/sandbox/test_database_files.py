"""Files of SQLite: cells open them in the sandbox that there is, and cannot change them."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing

import pytest
from support.levels import need

from kernel_agent import ScriptedModel, Session
from kernel_agent.session.inputs import LINK_ABOVE_BYTES

ASK = """
import sqlite3
db = sqlite3.connect("file:data/shop.db?mode=ro&immutable=1", uri=True)
print(db.execute("SELECT sum(amount) FROM sales").fetchone()[0])
for change in ("DELETE FROM sales", "CREATE TABLE t(a)", "ATTACH 'data/new.db' AS n"):
    try:
        db.execute(change)
        print("changed")
    except sqlite3.OperationalError:
        pass
"""


@pytest.mark.parametrize(
    ("level", "mode", "linked"),
    [
        ("bubblewrap", "delete", False),
        ("bubblewrap", "wal", True),
        ("namespaces", "wal", False),
    ],
)
async def test_a_cell_reads_a_database_and_cannot_change_it(tmp_path, level, mode, linked):
    """A copy, or a large file where it lies; one in WAL mode, too, whose helpers are not there."""
    need(level)
    shop = tmp_path / "shop.db"
    with closing(sqlite3.connect(shop)) as db:
        db.execute(f"PRAGMA journal_mode = {mode}")
        db.execute("CREATE TABLE sales(amount INTEGER)")
        db.execute("INSERT INTO sales VALUES (15), (20)")
        db.commit()
    if linked:
        os.truncate(shop, LINK_ABOVE_BYTES + 1)  # what is behind the last page is none of it
    before = shop.stat()
    async with Session(
        model=ScriptedModel([]), sandbox=level, data=[shop], out=tmp_path / "out"
    ) as session:
        result = await session.execute(ASK)
    assert result.outputs[0]["text"] == "35\n"
    assert (tmp_path / "out" / "data" / "shop.db").is_symlink() is linked
    after = shop.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert [path.name for path in shop.parent.glob("shop*")] == ["shop.db"]
