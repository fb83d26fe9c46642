"""Questions for a share: its target and its base."""

from __future__ import annotations

from kernel_agent.offline.grouping import Grouping
from kernel_agent.offline.question import (
    Group,
    Question,
)
from kernel_agent.offline.reader import Filter, NotUnderstood

_Split = tuple[tuple[Filter, ...], tuple[Filter, ...]]
_ATTACHING = ("with", "having", "where", "whose")


class Portions(Grouping):
    """A reader of “what share of … are …”, “the share of each …”, “the rate of … by …”."""

    def _share(self) -> Question | None:
        places = self.places("share")
        if not places:
            return None
        rate = any(self.mentions[at].text.lower() == "rate" for at in places)
        self.use(*places)
        self.use_all("compare")
        self._use_dependent_counts()
        if any(self.is_numeric(at) and not self._truth_at(at) for at in self.places("col")):
            return self._share_of_sum()
        loose = [at for at in self.places("col") if not self._truth_at(at)]
        if loose and not rate and not self.filters and not self.has("sup", "hint", "agg"):
            column = self.resolve(loose[0], "groups")
            self.use(loose[0])
            self._add_group(Group(column=column))
        if self.groups and not self.filters and not self.places("col"):
            if len(self.groups) > 1:
                raise NotUnderstood("the share of what, by two groups")
            if rate:
                raise NotUnderstood("the rate of what")
            return self._question("shares")
        self.truths()
        if not self.filters:
            raise NotUnderstood("the share of what")
        if len(self.groups) > 1:
            raise NotUnderstood("a share by two groups")
        target, base = self._target_and_base()
        return self._question("share", filters=base, target=target)

    def _use_dependent_counts(self) -> None:
        self.use_all("count", "by", "distinct")

    def _share_of_sum(self) -> Question:
        measures = self._measures()
        if self.has("agg") and self.use_all("agg") != ["sum"]:
            raise NotUnderstood("the share of an average")
        if len(measures) != 1 or len(self.groups) != 1:
            raise NotUnderstood("the share of a column's total needs one column and “by” a group")
        return self._question("share_of_sum", measures=measures, stats=("sum",))

    def _target_and_base(self) -> _Split:
        """Split conditions into the share's target and its base.

        “What share of Adelie penguins *are* female”: the base stands before the verb. “The share
        of females *among* Adelie penguins”: the base stands after. One condition is the target.
        """
        filters = tuple(sorted(self.filters, key=lambda f: f.at))
        if len(filters) == 1:
            return filters, ()
        split = self._split_by_words(filters) or self._split_by_kind(filters)
        if split is None:
            raise NotUnderstood("which of the conditions is the share and which is the whole")
        return split

    def _split_by_words(self, filters: tuple[Filter, ...]) -> _Split | None:
        """Split at the verb or the “among” that stands between conditions."""
        for at, mention in enumerate(self.mentions):
            low = mention.text.lower()
            left = tuple(f for f in filters if f.at < at)
            right = tuple(f for f in filters if f.at >= at)
            if mention.kind == "by" and low in ("among", "among the", "across") and left and right:
                return left, right
            if mention.kind == "verb" and low not in _ATTACHING and left and right:
                timed, target = _times(right)
                return (target, (*left, *timed)) if target else (left, timed)
            if mention.kind == "noun" and at > 0 and not left:
                verb = next((p for p in self.places("verb") if p > at), 0)
                before = tuple(f for f in right if f.at < verb)
                after = tuple(f for f in right if f.at > verb)
                if verb and before and after:
                    return after, before
        return None

    def _split_by_kind(self, filters: tuple[Filter, ...]) -> _Split | None:
        """Split where only one condition can be what has the share: not a time, or a yes."""
        timed, target = _times(filters)
        if len(target) == 1:
            return target, timed
        truths = tuple(f for f in filters if f.column.truth)
        last = truths and (truths[0] is filters[-1] or self.kind(truths[0].at - 1) == "verb")
        if len(truths) == 1 and last:  # “what percentage of women survived”
            return truths, tuple(f for f in filters if f not in truths)
        if self.kind(filters[-1].at) == "cmphint":  # “what share of Gentoos weigh more than …”
            return (filters[-1],), filters[:-1]
        return None


def _times(filters: tuple[Filter, ...]) -> _Split:
    """Return the conditions on time, and the others."""
    return (
        tuple(f for f in filters if f.column.temporal),
        tuple(f for f in filters if not f.column.temporal),
    )
