"""The vocabulary: the English words that a question may hold beside the names of columns.

Each has a letter, by which :mod:`~kernel_agent.offline.grammar` reads it. Words of the empty letter
say nothing of what is asked. No word is here that excludes, compares or picks rows (not, than,
where, only, first half): a question with one is refused.
"""

from __future__ import annotations

VOCABULARY = {
    "": "a an the is are was were be been do does did has have had we i you me my our us there here"
    " it its this that these please show give list tell can could would like to know see look find"
    " get how s compare draw plot chart graph calculate compute come all"
    " available contained contain as-a-table"
    " as-a-chart as-a-figure as-a-line-chart as-a-bar-chart their they belong belongs fall about"
    " seen recorded listed",
    "W": "which what",
    "g": "value values figure figures group groups category categories",  # after a name
    "S": "average mean avg median total sum maximum max minimum min",  # a statistic
    "E": "on-average in-total",  # one that stands behind
    "H": "highest largest biggest greatest lowest smallest",
    "K": "most least fewest longest shortest",
    "t": "top bottom",
    "f": "first last",
    "k": "how-many number-of count counts how-often frequency",
    "v": "different distinct unique",
    "R": "row rows record records entry entries observation observations line lines measurement"
    " measurements occur occurs appear appears",
    "C": "column columns column-names",
    "P": "table data dataset data-set file",
    "Y": "describe overview summary summarise summarize",
    "I": "missing gap gaps empty incomplete blank blanks",
    "w": "where",
    "i": "with",
    "e": "trend development",
    "D": "change changed changes develop developed develops evolve evolved",  # verbs
    "T": "over-time",
    "B": "per each every across for-each for-every in-each in-every within-each of-each"
    " of-every over over-the grouped-by split-by broken-down-by across-the each-of-the",
    "b": "by",
    "O": "of in for on to into",
    "A": "and , &",
    "U": "year years quarter quarters month months week weeks day days calendar-month"
    " month-of-the-year calendar-quarter weekday weekdays day-of-the-week",
    "u": "yearly annual annually quarterly monthly weekly daily",
    "N": "two three four five six seven eight nine ten twenty",
    "Z": "sold sales sell sells selling",
    "HZ": "best-selling bestselling",
    "ZH": "sells-best sold-best",
    "KR": "most-common most-frequent least-common least-frequent",
}  # fmt: skip
"""Letter -> words; a hyphen joins the words of a phrase."""

PHRASES = {
    words.replace("-", " "): letter for letter, text in VOCABULARY.items() for words in text.split()
}

SIZES = {"largest", "biggest", "greatest", "smallest"}
LENGTHS = {"length", "duration", "time", "distance", "height"}
"""Words of columns that can be longest."""

STATS = {
    "average": "mean", "mean": "mean", "avg": "mean", "on average": "mean", "median": "median",
    "total": "sum", "sum": "sum", "in total": "sum", "maximum": "max", "max": "max",
    "minimum": "min", "min": "min",
}  # fmt: skip
LOWEST = {"lowest", "smallest", "shortest", "least", "fewest", "bottom", "least common",
          "least frequent"}  # fmt: skip
UNITS = {
    "yearly": "year", "annual": "year", "annually": "year", "quarterly": "quarter",
    "monthly": "month", "weekly": "week", "daily": "day", "month of the year": "calendar month",
    "day of the week": "weekday", "weekdays": "weekday",
}  # fmt: skip
_TO_TEN = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
NUMBERS = {word: n for n, word in enumerate(_TO_TEN, start=2)} | {"twenty": 20}
SALES = {"sale", "sold", "revenue", "turnover", "unit", "quantity", "qty"}
"""Words of columns that say how much was sold, alone or with the ones below."""

MONEY = {"amount", "total", "usd", "eur", "gbp", "euro", "dollar"}
COUNTED = SALES | {"pop", "population", "area"}
"""Words of columns of quantities: “per unit” may be a ratio."""

DERIVED = {
    "per", "percap", "capita", "rate", "ratio", "share", "pct", "percent", "percentage", "index",
    "change", "diff", "difference", "growth", "id", "code", "num", "number", "rank", "std", "error",
}  # fmt: skip
"""Words that make a name mean something else: “gdp” is not ``gdp_per_capita``."""

SHORT = {
    "average": "avg", "expectancy": "exp", "population": "pop", "temperature": "temp",
    "quantity": "qty", "amount": "amt", "department": "dept", "precipitation": "precip",
    "percent": "pct", "generation": "gen", "description": "desc", "category": "cat",
}  # fmt: skip
"""Words -> their usual short forms in the names of columns."""
