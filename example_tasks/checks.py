"""Checks of our own for tasks whose answers are sentences."""

import re


def near(answer, task):
    """Whether the answer's first number is the expected one to three digits."""
    numbers = re.findall(r"\d[\d,]*\.?\d*", str(answer))
    if not numbers:
        return False, "there is no number in the answer"
    value = float(numbers[0].replace(",", ""))
    return abs(value - task["answer"]) <= 0.001 * task["answer"], f"the first number is {value:g}"


def names_all(answer, task):
    """Whether every expected name is in the answer."""
    missing = [name for name in task["answer"] if name not in str(answer)]
    return not missing, f"not named: {', '.join(missing)}"
