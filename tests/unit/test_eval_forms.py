"""The forms that models answer in: a right value is not wrong for its dress, nor a wrong one right.

The answers are written as models write them that were asked for a sentence with numbers and units,
for the value alone, or for nothing in particular. The wrong ones hold what is expected where they
can: in a bound, a range, a total, a year, another unit, a denial.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples

from kernel_agent.evaluation.checks import judge
from kernel_agent.evaluation.numbers import read_number
from kernel_agent.evaluation.tasks import Task

ISLANDS = ["Biscoe", "Dream", "Torgersen"]
CITIES = ["Washington, D.C.", "New York", "Trinidad and Tobago"]
ANY_CASE = {"kind": "exact", "ignore_case": True}
ROUGHLY = {"kind": "number", "relative": 0.001}
THIN = "\u202f"
MINUS, TIMES = "\u2212", "\u00d7"

RIGHT = [
    ("number", 91000, 91000),
    ("number", 91000, "91,000"),
    ("number", 91000, "About 91,000 visitors came."),
    ("number", 91000, "91,000 (2018: 88,000)"),
    ("number", 91000, f"91{THIN}000 visitors"),
    ("number", 91000, "91'000"),
    ("number", 91000, "91k"),
    ("number", 91000, "The answer is **91,000**."),
    ("number", 91000, "In 2019, 91,000 visitors came."),
    ("number", 91000, {"visitors": 91000}),
    ("number", 91000, [{"visitors": 91000.0}]),
    ("number", 1234567, "1,234,567"),
    ("number", 3.2e6, "3.2 million US dollars"),
    ("number", 2065.10, "2023: $2,065.10 per acre"),
    ("number", 2065.10, "$2,065.10"),
    (
        "number",
        2065.10,
        "The price was US$2,065.10 per acre, because no other year had more than 3.",
    ),
    ("number", 4201.754, "The average body mass is 4,201.754 g (342 of 344 penguins)."),
    (ROUGHLY, 4201.754, "≈ 4,202 g"),
    ("number", 36.05, "36.05%"),
    ("number", 36.05, "36.05 % of all penguins (124 of 344)"),
    ("number", -0.87, f"{MINUS}0.87"),
    ("number", -0.87, "The correlation is -0.87."),
    ("number", -12.5, "-$12.50"),
    ("number", 42, "42: because three files hold 14 rows each"),
    ("number", 42, "42\n\nI counted the rows of 3 files."),
    ("number", 42, "There are 42 rows."),
    ("number", 42, "forty-two, that is 42"),
    ("number", 7, "Seven"),
    ("number", 7, "7 %"),
    ("number", 0.07, "0.07"),
    ("number", 0.07, "7 %"),
    ("number", 1.5e-5, "1.5e-05"),
    ("number", 1.5e5, f"1.5 {TIMES} 10^5"),
    ("number", 3.2, "3.2 ± 0.4"),
    ("number", 2019, "The highest average was in 2019."),
    ("number", 2019, "2019"),
    ("number", 12, "12kg"),
    ("number", 124, "124 of the 344 penguins"),
    ("number", -3.2, "It fell by 3.2 points."),
    ("number", 1234.5, "1.234,5"),
    ("number", 42, "42 (95% CI: 38 to 46)"),
    ("number", 42, "Since 2019, 42 storms"),
    ("number", 42, "42 as of 2019-05-03"),
    ("number", 42, "`42`"),
    ("number", -5, f"{MINUS}5 °C"),
    ("exact", "Gentoo", "Gentoo"),
    ("exact", "Gentoo", "**Gentoo**"),
    ("exact", "Gentoo", "Gentoo."),
    ("exact", "Gentoo", "'Gentoo'"),
    ("exact", "Gentoo", "Gentoo: because its mean body mass is the highest (5,076 g)."),
    ("exact", "Gentoo", "Gentoo (5,076.0 g)"),
    ("exact", "Gentoo", "The heaviest species is Gentoo."),
    ("exact", "Gentoo", "The answer is: Gentoo"),
    ("exact", "Gentoo", [{"species": "Gentoo"}]),
    ("exact", "Gentoo", "Gentoo is the heaviest species, with 5,076 g on average."),
    ("exact", "91000", 91000),
    ("exact", 91000, "91,000"),
    ("exact", 0.3, 0.1 + 0.2),
    ("exact", True, "Yes"),
    ("exact", "yes", True),
    (ANY_CASE, "yes", "Yes, 27 against 19."),
    (ANY_CASE, "gentoo", "GENTOO"),
    ("exact", "St. John\u2019s", "St. John's"),
    ("exact", [1, 2], "[1, 2]"),
    ("set", ISLANDS, ISLANDS[::-1]),
    ("set", ISLANDS, "Biscoe, Dream, Torgersen"),
    ("set", ISLANDS, "Biscoe, Dream and Torgersen."),
    ("set", ISLANDS, "Biscoe; Dream; Torgersen"),
    ("set", ISLANDS, "- Biscoe\n- Dream\n- Torgersen"),
    ("set", ISLANDS, "1. **Biscoe**\n2. **Dream**\n3. **Torgersen**"),
    ("set", ISLANDS, "The islands are: Biscoe, Dream, and Torgersen."),
    ("set", ISLANDS, "Adelie penguins were seen on Biscoe (44), Dream (56) and Torgersen (52)."),
    ("set", ISLANDS, "Biscoe (44), Dream (56), Torgersen (52)"),
    ("set", ISLANDS, "Biscoe: 44\nDream: 56\nTorgersen: 52"),
    ("set", ISLANDS, "['Biscoe', 'Dream', 'Torgersen']"),
    ("set", ISLANDS, [{"island": name} for name in ISLANDS]),
    ("set", ISLANDS, {"Biscoe": 44, "Dream": 56, "Torgersen": 52}),
    ("set", CITIES, CITIES),
    ("set", CITIES, "\n".join(CITIES)),
    ("set", CITIES, "; ".join(CITIES)),
    ("set", CITIES, "Washington, D.C., New York and Trinidad and Tobago"),
    ("set", [2008, 2009], "2008 and 2009"),
    ("set", [1, 2, 3], "1, 2, 3"),
    ("set", [1000, 2000], ["1,000", 2000.0]),
]
"""What is right, however it is said."""

WRONG = [
    ("number", 3, "3 of 14 rows"),
    ("number", 14, "3 of 14 rows"),
    ("number", 3, "between 3 and 5"),
    ("number", 5, "between 3 and 5"),
    ("number", 3, "3-5"),
    ("number", 3, "3 to 5 rows"),
    ("number", 3, "not 3"),
    ("number", 3, "It is not 3."),
    ("number", 3, "It can't be 3."),
    ("number", 3, "more than 3"),
    ("number", 3, "at least 3"),
    ("number", 3, "≥ 3"),
    ("number", 3, "3 or more"),
    ("number", 3, "3+"),
    ("number", 3, "3 or 4"),
    ("number", 3, "either 3, or nothing"),
    ("number", 3, "-3"),
    ("number", 3, f"{MINUS}3"),
    ("number", 3, "minus 3"),
    ("number", -3, 3),
    ("number", -3, "3"),
    ("number", 3, "It fell by 3."),
    ("number", 3, "If 3 rows were left out, nothing would change."),
    ("number", 3, "I could not read the 3 files."),
    ("number", 3, "The top 3 regions"),
    ("number", 3, "Q3"),
    ("number", 3, "the 3rd quarter"),
    ("number", 19, "COVID-19"),
    ("number", 3, "I looked at 3 files. The total is 91."),
    ("number", 3, "3 files were read. The total is 91."),
    ("number", 3, "3 files\nTotal: 91"),
    ("number", 3, "1/3"),
    ("number", 3, "3 million"),
    ("number", 3, f"3 {TIMES} 10^5"),
    ("number", 3, "3e5"),
    ("number", 3, "300"),
    ("number", 3, "3,000"),
    ("number", 7, 0.07),
    ("number", 7, "0.07"),
    ("number", 0.07, 7),
    ("number", 0.07, "0.7%"),
    ("number", 7, "700%"),
    ("number", 91000, "91,00"),
    ("number", 91000, "91"),
    ("number", 91000, "91.000001"),
    ("number", 91000, "90,999"),
    ("number", 1.234, "1,234"),
    ("number", 1234, "1.234"),
    ("number", 1.23, "1,23 (two numbers)"),
    ("number", 2019, "In 2019, 91,000 visitors came."),
    ("number", 2019, "2019-05-03"),
    ("number", 2018, "91,000 (2018: 88,000)"),
    ("number", 1, "1. Load the data\n2. The mean is 5"),
    ("number", 3, {"rows": 3, "columns": 5}),
    ("number", 3, [1, 2, 3]),
    ("number", 3, {"type": "list", "length": 3, "first": [1, 2]}),
    ("number", 3, {"threshold": 3, "answer": "unknown"}),
    ("number", 1, True),
    ("number", 3, "NaN"),
    ("number", 3, "I cannot tell."),
    ("number", 3, "thirty"),
    ("number", 344, "Of the 344 penguins, 124 are Gentoo."),
    ("number", 12345, "Group 12 345 rows"),
    ("number", 41, "42, not 41"),
    ("number", 95, "95% CI: 38 to 46"),
    ("number", 5, "two to 5"),
    ("number", 5, "half of 5"),
    ("number", 5, "5!"),
    ("number", 2, "x^2"),
    ("number", 5, "The answer isn't known; I saw 5 rows"),
    ("number", 5, "I need 5 more files to answer"),
    ("number", 5, "5 less than 10"),
    ("number", 2, "R2 = 0.87"),
    ("exact", "Gentoo", "The excluded one is Gentoo"),
    ("exact", "Gentoo", "Anything but Gentoo"),
    ("set", ISLANDS, "Excluded are Biscoe, Dream and Torgersen"),
    ("set", ISLANDS, "Missing: Biscoe, Dream, Torgersen"),
    ("exact", "Gentoo", "Adelie"),
    ("exact", "Gentoo", "not Gentoo"),
    ("exact", "Gentoo", "It is not Gentoo."),
    ("exact", "Gentoo", "Gentoo or Adelie"),
    ("exact", "Gentoo", "Adelie, because it is heavier than Gentoo"),
    ("exact", "Gentoo", "The lightest is Gentoo and the heaviest is Adelie."),
    ("exact", "Gentoo", "Gentoo is lighter than Adelie."),
    ("exact", "Gentoo", "It is unclear whether it is Gentoo."),
    ("exact", "Gentoo", "Perhaps the answer is Gentoo"),
    ("exact", "Gentoo", "Gentoo\n\nCorrection: it is Adelie after all."),
    ("exact", "Gentoo", "Adelie\nGentoo"),
    ("exact", "Gentoo", "Gentoo?"),
    ("exact", "Gentoo", "gentoo"),
    ("exact", "Gentoo", ["Gentoo", "Adelie"]),
    ("exact", "York", "New York"),
    ("exact", "North", "North-East"),
    ("exact", "North", "North (East)"),
    ("exact", "Korea", "South Korea"),
    ("exact", 3, "3 of 14"),
    ("exact", 3, 3.0001),
    ("exact", "007", 7),
    ("exact", "yes", "No"),
    ("exact", "yes", "Yes and no"),
    ("exact", "yes", "Yes, but not on Dream"),
    ("exact", "yes", False),
    ("exact", [1, 2], [2, 1]),
    ("exact", [1, 2], "[1, 2, 3]"),
    ("set", ISLANDS, "Biscoe, Dream"),
    ("set", ISLANDS, "Biscoe, Dream, Torgersen, Coats"),
    ("set", ISLANDS, "Biscoe, Dream, Torgersen and Coats"),
    ("set", ISLANDS, "Biscoe, Dream, not Torgersen"),
    ("set", ISLANDS, "All but: Biscoe, Dream, Torgersen"),
    ("set", ISLANDS, "The islands are not Biscoe, Dream and Torgersen"),
    ("set", ISLANDS, "None of Biscoe, Dream and Torgersen"),
    ("set", ISLANDS, {"Biscoe": 44, "Dream": 56, "Torgersen": 0}),
    ("set", ISLANDS, [["Biscoe", "Dream"], ["Torgersen"]]),
    ("set", ["Biscoe"], "Biscoe, Dream, and Torgersen"),
    ("set", CITIES, "Washington, D.C., New York, Trinidad, Tobago"),
    ("set", ["New York"], "York, New"),
    ("set", [1, 2, 3], "1 to 3"),
    ("set", [1, 2, 3], "1.2, 3"),
    ("set", [1000], "1, 000"),
    ("set", ["a", "b"], "a or b"),
]
"""What is wrong, though it often holds what is expected."""


async def verdict(check, expected, answer):
    task = Task(id="t", task="?", answer=expected, check=check)
    return await judge(task, answer, answer if isinstance(answer, str) else str(answer))


@pytest.mark.parametrize(("check", "expected", "answer"), RIGHT)
async def test_a_right_answer_is_never_wrong_for_its_form(check, expected, answer):
    """Right, or said to be of a form that could not be judged."""
    said = await verdict(check, expected, answer)
    assert said.success or (said.success is None and said.form and said.reason)


@pytest.mark.parametrize(("check", "expected", "answer"), WRONG)
async def test_a_wrong_answer_is_never_right_for_its_form(check, expected, answer):
    """Wrong, or said to be of a form that could not be judged."""
    said = await verdict(check, expected, answer)
    assert not said.success
    assert said.reason


async def test_most_right_answers_are_judged_right():
    """Not judged is for what can be read in several ways, not for what is tedious to read."""
    said = [await verdict(*one) for one in RIGHT]
    assert len(said) >= 60
    assert sum(one.success is True for one in said) >= 5 / 6 * len(said)


async def test_most_wrong_answers_are_judged_wrong_unless_they_hold_what_is_expected():
    """A refusal, another value, one member too few or too many."""
    assert len(WRONG) >= 60
    plain = [
        ("number", 3, "91,000"), ("number", 3, "between 6 and 7"), ("number", 3, "I cannot tell."),
        ("exact", "Gentoo", "The heaviest species is Adelie."), ("exact", 3, "4 rows"),
        ("set", ISLANDS, "Biscoe and Dream"), ("set", ISLANDS, [*ISLANDS, "Coats"]),
        ("set", ISLANDS, "Biscoe, Dream, Torgersen, Coats"),
    ]  # fmt: skip
    assert [(await verdict(*one)).success for one in plain] == [False] * len(plain)


@settings(max_examples=examples(300))
@given(st.integers(-(10**12), 10**12), st.sampled_from(["{:,}", "{}", "{:_}", "about {:,} units"]))
def test_every_whole_number_is_read_as_it_was_written(number, form):
    """With and without thousands separators."""
    assert read_number(form.format(number), "").best == number


@settings(max_examples=examples(300))
@given(st.text(alphabet="0123456789.,-+ eE%()'_$\u00a0\u2212/:abcn\n", max_size=60))
def test_any_text_is_read_without_an_error(text):
    """And what it plainly says is among what it may say."""
    reading = read_number(text, "")
    assert reading.best is None or reading.best in reading.all or reading.best != reading.best
