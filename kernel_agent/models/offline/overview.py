"""What the offline analyst's first cell defines: a look at a table, one line a column.

This file is not imported by the package. Its code below this docstring is pasted into the first
cell, so that the exported notebook carries it and runs in plain Jupyter; being a file, it is
linted and tested like any other. :mod:`kernel_agent.models.offline.schema` reads what it prints.
"""

import json

import pandas as pd


def overview(name: str, table: pd.DataFrame, question: str = "") -> None:
    """Print a line for each column: what it holds, what is missing, its range or values."""
    indexed = "" if table.index.equals(pd.RangeIndex(len(table))) else ", indexed"
    print(f"Table {name}: {len(table)} rows x {table.shape[1]} columns{indexed}")
    if table.shape[1] > 60:  # look closely only at the columns that the question may mean
        words = {c: str(c).lower().replace("_", " ").split() for c in table}
        said = question.replace(" ", "")
        close = [c for c in table if any(w[:5] in said for w in words[c] if len(w) > 2)]
        close = close[:40] or list(table)[:20]
        print("Other columns:", json.dumps([c for c in table if c not in close])[:3000])
        table = table[close]
    room = max(24, 4500 // max(1, table.shape[1]) - 60)  # characters for the values of a column
    for label, column in table.items():
        known = column.dropna().infer_objects()
        kind = pd.api.types.infer_dtype(known)
        if kind == "floating" and (known % 1 == 0).all():
            known, kind = known.astype(int), "integer"
        elif kind.startswith("mixed"):
            known = known.map(str)
        line = f"{json.dumps(label, ensure_ascii=False)} | {kind} | {column.isna().sum()} missing"
        line += f" | {known.nunique()} distinct"
        if kind in ("integer", "floating", "datetime64"):
            line += f" | {known.min()} to {known.max()}"
        elif kind != "empty":
            texts = sorted(known.unique().tolist(), key=str)
            listed = json.dumps(texts, ensure_ascii=False, default=str)[1:-1]
            if len(texts) > 40 or len(listed) > room:
                asked = [t for t in texts if f" {str(t).lower()}" in f" {question}"][:12]
                few = [str(texts[at])[:30] for at in (0, len(texts) // 2, -1)]
                listed = f"e.g. {json.dumps(few, ensure_ascii=False)[1:-1]}"
                listed += f" | in the question: {json.dumps(asked, ensure_ascii=False)[1:-1]}"
            line += f" | {listed}"
        if kind == "integer" and known.nunique() <= 12:
            line += f" | {json.dumps(sorted(known.unique().tolist()))[1:-1]}"
        print(line)
