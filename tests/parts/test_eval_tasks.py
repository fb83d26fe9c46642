"""Files of tasks: what is read, and the line that is named for each mistake."""

import json

import pytest

from kernel_agent.errors import InputError
from kernel_agent.evaluation.tasks import read_tasks

GOOD = """\
# comment
- id: one
  task: How many?
  data: t.csv
  answer: 3
  check: number

- id: two
  task: ["First?", "And then?"]
  answer: [a, b]
  check:
    kind: set
    ignore_case: true
"""


def write(folder, text, name="tasks.yaml"):
    (folder / "t.csv").write_text("a\n1\n")
    path = folder / name
    path.write_text(text)
    return path


def test_yaml_and_json_lines_say_the_same(tmp_path):
    """Paths are relative to the file and come back absolute."""
    given = read_tasks(write(tmp_path, GOOD))
    lines = [
        {"id": "one", "task": "How many?", "data": ["t.csv"], "answer": 3, "check": "number"},
        {"id": "two", "task": ["First?", "And then?"], "answer": ["a", "b"],
         "check": {"kind": "set", "ignore_case": True}},
    ]  # fmt: skip
    text = "\n\n".join(json.dumps(line) for line in lines)
    same = read_tasks(write(tmp_path, text, "tasks.jsonl"))
    assert same.tasks == given.tasks
    assert given.tasks[0].data == (str(tmp_path / "t.csv"),)
    assert given.tasks[1].turns == ("First?", "And then?")


YAML_MISTAKES = [
    (GOOD.replace("check: number", "check: nmber"), 6, "unknown check 'nmber'; choose one of: ex"),
    (GOOD.replace("t.csv", "gone.csv"), 4, "there is no file gone.csv"),
    (GOOD.replace("answer: 3", "answer: three"), 6, "needs a number as answer"),
    (GOOD.replace("  answer: 3\n", ""), 5, "the check 'number' needs an answer"),
    (GOOD.replace("id: two", "id: one"), 8, "two tasks have the id 'one'"),
    (GOOD.replace("id: two", "idd: two"), 8, "id is missing"),
    (GOOD.replace("ignore_case: true", "ignore_case: perhaps"), 13, "ignore_case"),
    (GOOD.replace("ignore_case: true", "ignore: true"), 13, "there is no field"),
    (GOOD.replace("How many?", "' '"), 2, "the task is empty"),
    (GOOD.replace("id: one", "id: a/b"), 2, "should match pattern"),
    (GOOD.replace("  task: How many?", "  task: 'How"), 13, "not YAML"),
    (GOOD.replace("- id: one", "- [id, one]\n- id: one"), 2, "a task is an object"),
    ("id: one\ntask: How many?\n", 1, "write a list of tasks"),
    ("- id: x\n  task: ?\n  check: {kind: regex, pattern: '('}\n", 3, "not a regular expression"),
    ("- id: x\n  task: w\n  check: {kind: python, function: 'c.py:f'}\n", 3, "no file c.py"),
]


@pytest.mark.parametrize(("text", "line", "what"), YAML_MISTAKES)
def test_each_mistake_in_yaml_is_told_with_its_line(tmp_path, text, line, what):
    """One line, the file's name, the number, and what is wrong."""
    path = write(tmp_path, text.replace("task: ?", "task: w"))
    with pytest.raises(InputError) as caught:
        read_tasks(path)
    message = str(caught.value)
    assert "\n" not in message
    assert f"{path}, line {line}: " in message or what == "not YAML"
    assert f"{path}, line " in message
    assert what in message


def test_each_mistake_in_json_lines_is_told_with_its_line(tmp_path):
    """Blank lines count."""
    good = '{"id": "a", "task": "?", "answer": 1}'
    for bad in ("{", "[1]", '{"id": "b"}', good):
        path = write(tmp_path, f"{good}\n\n{bad}\n", "tasks.jsonl")
        with pytest.raises(InputError, match=r"tasks\.jsonl, line 3: "):
            read_tasks(path)


def test_files_that_are_none_are_told_in_one_line(tmp_path):
    """Missing, a folder, binary, empty."""
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00\x01")
    (tmp_path / "empty.yaml").write_text("# nothing\n")
    for name, what in (
        ("absent.yaml", "cannot be read"),
        (".", "is a folder"),
        ("binary.yaml", "not a text file"),
        ("empty.yaml", "holds no task"),
    ):
        with pytest.raises(InputError, match=what):
            read_tasks(tmp_path / name)


def test_the_example_tasks_are_good():
    """They are the first thing that people copy."""
    from pathlib import Path

    example = Path(__file__).parents[2] / "example_tasks" / "penguins.yaml"
    assert len(read_tasks(example).tasks) == 6
