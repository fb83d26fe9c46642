"""Replies in words: an answer, a question back, or an announcement of work that is not done yet.

A reply that holds no code may still be the answer. Whether it may is judged by its wording alone,
which is a rule of thumb: nobody can tell for certain what a sentence means. It errs to one side.
What it takes for an announcement is asked for again, as often as a reply that cannot be read; what
it takes for an answer is shown as the model's words and not a cell's (``Answer.in_words``). So a
sentence that promises is none as soon as it reads like one in the first person, and only known
forms of politeness and of speech are let through.

English and German are covered, and the commonest forms of French, Spanish and Chinese.
"""

from __future__ import annotations

import re

READ_CHARS = 20_000
"""Of a long reply, its end: who writes more than that has done more than announce."""

_GOES_ON = ("?", "\uff1f", ":", "\uff1a")  # as written in the East, too

_SENTENCE = re.compile(r"(?<=[.!?;])\s+|(?<=[\u3002\uff01\uff1b])|\n+")

_STOPS = r"(?:now|first|then|next|also|just|simply|quickly|begin by|start by|go ahead and)"

_SPEECH = (
    r"(?:not|never|know|be (?:happy|glad|pleased|able|unable)|explain|answer|clarify|define|say|"
    r"note|add|mention|point|stress|admit|assume|suppose|consider|imagine|keep|help|warn|"
    r"apologi[sz]e|decline|take(?! a look)|call (?:it|this|that))"
)
"""Verbs after "I will" or "let me" that announce no work."""

_WORK = (
    r"(?:load|read|open|look|inspect|check|compute|calculate|count|run|examine|explore|import|"
    r"start|begin)"
)
_MORE_WORK = (
    r"(?:group|plot|filter|proceed|analy[sz]e|fetch|query|list|sum|print|write|find|get|use|sort|"
    r"merge|clean|parse|scan|verify|convert|select|extract|determine|draw|summari[sz]e)"
)
"""Verbs of an analyst's work."""

_DOING = (
    r"(?:load|read|open|look|inspect|check|comput|calculat|count|runn|explor|import|start|fetch|"
    r"analy[sz]|work|proceed)ing"
)

_FORMS = (
    # I will load; I'm going to count; let me check
    (
        r"\bi(?:'ll| will| shall|'m going to| am going to|'m about to| am about to| must| should"
        r"| plan to| intend to| can now"
        r"|(?: need to| have to| want to|'d like to| would like to)(?! (?:see|know|have)\b))"
        rf" (?:{_STOPS} )*(?!{_SPEECH}\b)\w"
    ),
    rf"\blet(?: me|'s| us) (?:{_STOPS} )*(?!{_SPEECH}\b)\w",
    # we will load: "we" is the reader, too, but for an analyst's work
    (
        r"\bwe(?:'ll| will|'re going to| are going to|(?: will)? need to| have to| should| can now)"
        rf" (?:{_STOPS} )*(?:{_WORK}|{_MORE_WORK})\b"
    ),
    # First, I load the file; loading the file now
    rf"^\W*+(?:\w+(?: \w+)?,? )??i (?:{_STOPS} )*{_WORK}\b(?!.*\d)",
    (
        rf"(?:^\W*+(?:(?:now|first|next|ok|okay)\W+)?|\bi(?:'m| am) (?:{_STOPS} )*){_DOING}\b"
        r"(?!.*(?:\d| is | are | means ))"
    ),
    # The next step is to load it; step 1: read the file; time to count; one moment
    r"\b(?:next|first) (?:step|action|thing|task) (?:is|will be)\b|^\W*+(?:my )?plan\b",
    rf"^\W*+step \d\W+{_WORK}\b|\btime to {_WORK}\b",
    r"\b(?:give me|just) (?:a|one) (?:moment|second|minute)\b|\b(?:one moment|hold on)\b",
    # the same in other languages
    r"\bich (?:werde|muss|will|m\u00f6chte|fange)\b|\bwerde ich\b|\blass(?:t| uns| mich|en sie)\b",
    r"\b(?:lade|lese|\u00f6ffne|z\u00e4hle|berechne|pr\u00fcfe|untersuche|schaue|sehe) ich\b",
    (
        r"\bich (?:lade|lese|\u00f6ffne|z\u00e4hle|berechne|pr\u00fcfe|untersuche|beginne|schaue|"
        r"sehe (?:mir|nach))\b(?!.*\d)"
    ),
    r"\b(?:laden|lesen|\u00f6ffnen|berechnen|pr\u00fcfen|z\u00e4hlen) wir\b",
    r"\bje vais\b|\bvoy a\b|\bvamos a\b",
    r"\u6211(?:\u5c06|\u4f1a|\u5148|\u6765|\u8981)|\u8ba9\u6211|\u63a5\u4e0b\u6765",
)
_PROMISES = re.compile("|".join(_FORMS), re.IGNORECASE)

_WAITS = re.compile(
    r"\b(?:if|once|when|unless|until|as soon as|after) you\b|\bplease\b(?! (?:wait|hold))"
    r"|\b(?:wenn|sobald|falls) (?:du|sie)\b|\bbitte\b|\u5982\u679c|\u8bf7",
    re.IGNORECASE,
)
"""What is promised for a time when the person has done something is no announcement."""


def may_answer(words: str, *, ran: bool) -> bool:
    """Whether words may be an answer: no question back, and nothing that is only announced.

    Parameters
    ----------
    words
        A reply without code.
    ran
        Whether a step has run. Then the last sentence says whether the work goes on, and those
        before it report; otherwise any sentence does, since nothing was looked at yet.

    Examples
    --------
    >>> [may_answer(said, ran=True) for said in ("There are 42 rows.", "Which year?", "I count:")]
    [True, False, False]
    >>> [may_answer(said, ran=False) for said in ("It is the median.", "I'll load the file.")]
    [True, False]
    """
    text = words[-READ_CHARS:].replace("\u2019", "'").rstrip(" \n*_\"')")
    if not text or text.endswith(_GOES_ON):
        return False
    sentences = [sentence for each in _SENTENCE.split(text) if (sentence := each.strip())]
    return not any(map(_promises, sentences[-1:] if ran else sentences))


def _promises(sentence: str) -> bool:
    return bool(_PROMISES.search(sentence)) and not _WAITS.search(sentence)
