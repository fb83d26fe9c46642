"""The vocabulary: the English words that a question may hold beside the names of columns.

Each has a letter, by which :mod:`~kernel_agent.offline.grammar` reads it. Words of the empty letter
say nothing of what is asked. No word is here that excludes, compares or picks rows (not, than,
where, only, first half): a question with one is refused.
"""

from __future__ import annotations

VOCABULARY = {
    "": "a an the is are was were be been do does did has have had we i you me my our us there here it"
    " its this that these please show give list tell can could would like to know see look find get"
    " how s compare draw plot chart graph calculate compute come value values figure figures"
    " numbers group groups category categories available contained contain as-a-table"
    " as-a-chart hello hi thanks",
    "W": "which what",
    "S": "average mean avg median total sum maximum max minimum min",  # a statistic
    "E": "on-average in-total",  # one that stands behind
    "H": "highest largest biggest greatest longest heaviest lowest smallest shortest lightest",
    "K": "most least fewest",
    "t": "top bottom",
    "f": "first last",
    "k": "how-many number-of count counts how-often",
    "v": "different distinct unique",
    "R": "row rows record records entry entries observation observations line lines measurement"
    " measurements occur occurs",
    "C": "column columns",
    "P": "table data dataset file",
    "Y": "describe overview summary summarise summarize",
    "I": "missing gap gaps empty incomplete blank blanks",
    "w": "where",
    "i": "with",
    "D": "change changed changes develop developed develops trend evolve evolved",
    "T": "over-time",
    "B": "per each every across for-each for-every in-each in-every of-each of-every over over-the"
    " grouped-by split-by broken-down-by across-the each-of-the",
    "b": "by",
    "O": "of in for on",
    "A": "and , &",
    "U": "year years quarter quarters month months week weeks day days calendar-month month-of-the-year"
    " calendar-quarter weekday weekdays day-of-the-week",
    "u": "yearly annual annually quarterly monthly weekly daily",
    "N": "two three four five six seven eight nine ten twenty",
    "Z": "sold sales sell sells selling",
    "HZ": "best-selling bestselling",
    "ZH": "sells-best sold-best",
}  # fmt: skip
"""Letter -> words; a hyphen joins the words of a phrase."""

PHRASES = {
    tuple(phrase.split("-")): letter for letter, text in VOCABULARY.items() for phrase in text.split()
}
LONGEST = max(map(len, PHRASES))

STATS = {
    "average": "mean", "mean": "mean", "avg": "mean", "on average": "mean", "median": "median",
    "total": "sum", "sum": "sum", "in total": "sum", "maximum": "max", "max": "max",
    "minimum": "min", "min": "min",
}  # fmt: skip
LOWEST = {"lowest", "smallest", "shortest", "lightest", "least", "fewest", "bottom"}
UNITS = {
    "yearly": "year", "annual": "year", "annually": "year", "quarterly": "quarter",
    "monthly": "month", "weekly": "week", "daily": "day", "month of the year": "calendar month",
    "day of the week": "weekday", "weekdays": "weekday",
}  # fmt: skip
NUMBERS = {word: n for n, word in enumerate(
    ["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"], start=2
)} | {"twenty": 20}  # fmt: skip
SALES = {"sale", "sold", "revenue", "turnover", "unit", "quantity", "qty"}
"""Words of columns that say how much was sold."""

SHORT = {
    "average": "avg", "expectancy": "exp", "population": "pop", "temperature": "temp",
    "quantity": "qty", "amount": "amt", "department": "dept", "precipitation": "precip",
    "percent": "pct", "generation": "gen", "description": "desc", "category": "cat",
}  # fmt: skip
"""Words -> their usual short forms in the names of columns."""
