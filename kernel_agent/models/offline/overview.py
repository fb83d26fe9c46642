"""What the offline analyst's first cell defines: a look at a table, one line a column.

This file is not imported by the package. Its code below this docstring is pasted into the first
cell, so that the exported notebook carries it and runs in plain Jupyter; being a file, it is
linted and tested like any other. :mod:`kernel_agent.models.offline.schema` reads what it prints.
"""

import json

import pandas as pd

PLACEHOLDERS = ["", "-", "--", "?", ".", "n/a", "na", "nan", "none", "null"]
TIME_OF_DAY = r"(?:[ T]\d{1,2}:\d{2}.*)?"
TEXT_STYLES = {  # what a text column may hold, tried in this order
    "numbers as text 1,234.5": r"[-+]?[$€£¥]? ?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)? ?[%€$£]?",
    "numbers as text 1.234,5": r"[-+]?[$€£¥]? ?(?:\d{1,3}(?:\.\d{3})+|\d+)(?:,\d+)? ?[%€$£]?",
    "dates as text": r"\d{4}[-/.]\d{1,2}(?:[-/.]\d{1,2})?" + TIME_OF_DAY,
    "dates as text, in words": r"(?:\d{1,2} )?[A-Za-z]{3,9}\.? (?:\d{1,2},? )?\d{4}",
    "dates as text, month first": r"(?:0?\d|1[0-2])[-/]\d{1,2}[-/]\d{2,4}" + TIME_OF_DAY,
    "dates as text, day first": r"\d{1,2}[-/.](?:0?\d|1[0-2])[-/.]\d{2,4}" + TIME_OF_DAY,
}


def kind_of(values):
    """Name what a column holds, also where text is a number or a date in disguise."""
    if values.empty:
        return "empty"
    if pd.api.types.is_bool_dtype(values):
        return "yes or no"
    if pd.api.types.is_numeric_dtype(values):
        return "whole numbers" if (values % 1 == 0).all() else "numbers"
    if pd.api.types.is_datetime64_any_dtype(values):
        return "dates"
    text = values.astype(str).str.strip()
    text = text[~text.str.lower().isin(PLACEHOLDERS)]
    if text.empty or text.str.match(r"0\d+$").any():  # 00123 is a code, not a number
        return "text"
    return next((k for k, style in TEXT_STYLES.items() if text.str.fullmatch(style).all()), "text")


def overview(name, table, question=""):
    """Print for each column its kind, what is missing, how many distinct values, and which."""
    print(f"Table {name}: {len(table)} rows x {table.shape[1]} columns")
    if not isinstance(table.index, pd.RangeIndex):
        print("Note: the index is not a row number")
    if table.shape[1] > 60:  # only the columns that the question may mean are looked at closely
        squeezed = question.replace(" ", "")
        words = {c: str(c).lower().replace("_", " ").split() for c in table}
        close = [c for c in table if any(w[:5] in squeezed for w in words[c] if len(w) > 2)]
        close = close[:40] or list(table)[:20]
        print(f"Other columns: {json.dumps([c for c in table if c not in close])[:3000]}")
        table = table[close]
    room = max(24, 4500 // max(1, table.shape[1]) - 60)
    for label, column in table.items():
        known = column.dropna().infer_objects()
        if known.map(type).isin([list, dict]).any():
            known = known.map(str)  # so that values which cannot be compared can be counted
        kind, values = kind_of(known), known.drop_duplicates()
        line = f"{json.dumps(label, ensure_ascii=False)} | {kind} | {column.isna().sum()} missing"
        line += f" | {len(values)} distinct"
        if kind == "whole numbers":
            values = values.astype(int)
        if kind in ("whole numbers", "numbers", "dates"):
            line += f" | {values.min()} to {values.max()}"
        if kind == "whole numbers" and len(values) <= 12:
            line += f" | {json.dumps(sorted(values.tolist()))[1:-1]}"
        elif "text" in kind or kind == "yes or no":
            texts = sorted(values.tolist(), key=str)
            listed = json.dumps(texts, ensure_ascii=False, default=str)[1:-1]
            if len(texts) <= 40 and len(listed) <= room:
                line += f" | {listed}"
            else:
                asked = [t for t in texts if f" {str(t).lower()}" in f" {question}"][:12]
                shown = json.dumps([str(t)[:40] for t in texts[:2]], ensure_ascii=False)[1:-1]
                named = json.dumps(asked, ensure_ascii=False)[1:-1]
                line += f" | e.g. {shown} | in the question: {named}"
        print(line)
