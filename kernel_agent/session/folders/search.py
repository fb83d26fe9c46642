"""Search an index by words: BM25 over names, columns and first rows (``bm25s``).

A word of a path or a column counts twice: who names a file says what is in it.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

from kernel_agent.safe import encodable, one_line, plain
from kernel_agent.session.folders.index import Entry, Index

if TYPE_CHECKING:
    import pandas as pd

MOST = 10
MAX_MOST = 200
MAX_WORDS = 60  # of a question
MAX_SHORT = 4  # letters of a word that may be short for another; it counts half
MAX_MEANT = 150  # such words: with those of a question fewer than a byte can number
SAME_LAYOUT = 3  # files of one layout that come first; the others are worth half
MAX_COLUMNS_TOLD = 200  # characters

_WORD = re.compile(r"[^\W_]+")
_PART = re.compile(r"\d+|\D+")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_PATH_WEIGHT, _COLUMN_WEIGHT = 2, 2


@dataclass(frozen=True, kw_only=True)
class Found:
    """A file that fits, its score, and the words that it has, by where they stand."""

    entry: Entry
    score: float
    why: str


def words_of(text: str) -> Iterator[str]:
    """Yield the words of a text or a name as they are compared: lower case, singular, no accents.

    >>> list(words_of("StateTables/Zürich_2024-rains.csv"))
    ['state', 'table', 'zurich', '2024', 'rain', 'csv']
    """
    if not text.isascii():
        bare = unicodedata.normalize("NFKD", text)
        text = "".join(c for c in bare if not unicodedata.combining(c))
    for word in _WORD.findall(_CAMEL.sub(" ", text).lower()):
        parts = _PART.findall(word)
        if len(parts) == 1 or any(len(part) == 1 for part in parts):
            yield _singular(word)
        if len(parts) > 1:
            yield from (part for part in parts if len(part) > 1)


def _abbreviates(short: str, word: str) -> bool:
    """Whether a word may be short for another: its beginning, or its letters without vowels.

    >>> _abbreviates("prcp", "precipitation"), _abbreviates("bos", "boston")
    (True, True)
    >>> _abbreviates("hour", "harbour"), _abbreviates("port", "precipitation")
    (False, False)
    """
    if len(word) < len(short) + 2 or short[0] != word[0]:
        return False
    letters = iter(word)
    bare = not set(short[1:]) & set("aeiou")
    return word.startswith(short) or (bare and all(letter in letters for letter in short))


def _singular(word: str) -> str:
    if len(word) > 4 and word.endswith("ies"):
        return f"{word[:-3]}y"
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


class Search:
    """Search in one index."""

    def __init__(self, index: Index) -> None:
        self.index = index

    def best(self, question: str, most: int = MOST) -> list[Found]:
        """Return the files that fit best, the best first; none where no word is in any.

        Parameters
        ----------
        question
            Words, or a whole question.
        most
            How many at most.
        """
        asked, scores = self._scores(question)
        ordered = scores.argsort()[::-1][: MAX_MOST * 5]
        found: list[tuple[float, int]] = []
        seen = Counter[int]()
        for number in sorted(ordered.tolist(), key=lambda number: (-scores[number], number)):
            layout = self.index.entries[number].layout
            seen[layout] += 1
            score = float(scores[number])
            found.append((score if seen[layout] <= SAME_LAYOUT else score / 2, number))
        found.sort(key=lambda each: (-each[0], each[1]))
        return [self._found(number, score, asked) for score, number in found[:most] if score > 0]

    def _scores(self, question: str) -> tuple[list[str], Any]:
        """Return the words that count, and the score of each file.

        All other words of a file count in its length, and have no number of their own: scores are
        those of an index of all words, in a small part of its memory.
        """
        import numpy as np
        from bm25s import BM25

        said = words_of(question[:4_000])
        asked = _Asked(w for w in said if w not in self._stopwords and (len(w) > 1 or w.isdigit()))
        scores = np.zeros(len(self.index.entries))
        if not asked.numbers or not self.index.entries:
            return [], scores
        documents = list(self._documents(asked))
        ranking = BM25()
        ranking.index((documents, {"": 0, **asked.numbers}), show_progress=False)
        meant = [asked.numbers[word] for word in asked.meant]
        named = [number for number in asked.numbers.values() if number not in meant]
        for numbers, weight in ((named, 1.0), (meant, 0.5)):
            if numbers:
                scores += weight * ranking.get_scores(numbers)
        return list(asked.numbers), scores

    def table(self, question: str, most: int) -> pd.DataFrame:
        """Return the files that fit best as a table; without words, the first by their names."""
        import pandas as pd

        if question.strip():
            found = self.best(question, most)
        else:
            found = [Found(entry=e, score=0.0, why="") for e in self.index.entries[:most]]
        rows = [self._row(each) for each in found if encodable(each.entry.path) == each.entry.path]
        return pd.DataFrame(rows, columns=["path", "kind", "rows", "columns", "why"])

    def _row(self, found: Found) -> dict[str, Any]:
        layout = self.index.layout_of(found.entry)
        columns = plain(", ".join(layout.columns))
        return {
            "path": found.entry.path,
            "kind": layout.kind,
            "rows": found.entry.rows if found.entry.rows >= 0 else None,
            "columns": encodable(columns[:MAX_COLUMNS_TOLD]),
            "why": found.why,
        }

    def _found(self, number: int, score: float, asked: list[str]) -> Found:
        entry = self.index.entries[number]
        columns = " ".join(self.index.layout_of(entry).columns)
        told = []
        for where, text in (("name", entry.path), ("columns", columns), ("rows", entry.words)):
            here = set(words_of(text))
            words = [word for word in asked if word in here]
            asked = [word for word in asked if word not in here]
            told += [f"{where}: {', '.join(words)}"] if words else []
        return Found(entry=entry, score=score, why=one_line("; ".join(told), 200))

    @cached_property
    def _stopwords(self) -> frozenset[str]:
        from bm25s.stopwords import STOPWORDS_EN

        return frozenset(STOPWORDS_EN)

    def _documents(self, asked: _Asked) -> Iterator[bytes]:
        """Yield the words of each file by their numbers, as often as they count."""

        def numbers(text: str) -> bytes:
            return bytes(map(asked.number, words_of(text)))

        of_layouts = [
            numbers(" ".join(each.columns)) * _COLUMN_WEIGHT for each in self.index.layouts
        ]
        of_folders: dict[str, bytes] = {}
        for entry in self.index.entries:
            path = entry.path.partition("/")[2]  # all lie in data/
            folder, _, name = path.rpartition("/")
            if folder not in of_folders:
                of_folders[folder] = numbers(folder)
            named = (of_folders[folder] + numbers(name)) * _PATH_WEIGHT
            yield named + of_layouts[entry.layout] + numbers(entry.words)


class _Asked:
    """The words of a question, and those of the files that may be short for one, by numbers."""

    def __init__(self, words: Iterable[str]) -> None:
        self._wanted = tuple(islice(dict.fromkeys(words), MAX_WORDS))
        self.numbers = {word: number for number, word in enumerate(self._wanted, 1)}
        self.meant: list[str] = []
        self._others: set[str] = set()

    def number(self, word: str) -> int:
        """Return the number of a word; 0 of one that does not count."""
        number = self.numbers.get(word, 0)
        if number or not 3 <= len(word) <= MAX_SHORT or word in self._others:
            return number
        is_meant = any(_abbreviates(word, wanted) for wanted in self._wanted)
        if not is_meant or len(self.meant) == MAX_MEANT:
            self._others.add(word)
            return 0
        self.meant.append(word)
        self.numbers[word] = len(self.numbers) + 1
        return self.numbers[word]
