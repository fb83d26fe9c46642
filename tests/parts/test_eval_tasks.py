"""Files of tasks: what is read, and the line that is named for each mistake."""

import json
from collections import Counter

import pytest

from kernel_agent.errors import InputError, UntrustedTasks
from kernel_agent.evaluation.smoke import smoke_task
from kernel_agent.evaluation.tasks import Task, TaskSet, read_tasks, sample
from kernel_agent.safe import keep_answer
from kernel_agent.tools import load_tools

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


def test_a_day_in_yaml_is_a_text_as_in_json(tmp_path):
    days = GOOD.replace("[a, b]", "[2024-01-05, 2024-02-01 10:00:00]")
    _, second = read_tasks(write(tmp_path, days)).tasks
    assert second.answer == ["2024-01-05", "2024-02-01 10:00:00"]


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
    assert len(read_tasks(example, trusted=True).tasks) == 6


# --- what a file of tasks reaches ----------------------------------------------------------------

TOOL = "from kernel_agent import tool\n\n@tool\ndef f() -> int:\n    'F.'\n    return 1\n"


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A stranger's folder, with something of the user's beside it, and a home elsewhere."""
    for name in ("project", "home", "private"):
        (tmp_path / name).mkdir()
    (tmp_path / "private" / "salaries.csv").write_text("name,pay\nA,1\n")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


def one(folder, **fields):
    path = folder / "tasks.jsonl"
    path.write_text(json.dumps({"id": "a", "task": "?", "answer": 1, **fields}) + "\n")
    return path


def refused(path):
    with pytest.raises(UntrustedTasks) as caught:
        read_tasks(path)
    assert "\n" not in str(caught.value)
    assert "--trust" in str(caught.value)
    return caught.value


def test_what_lies_beneath_the_files_folder_needs_no_word(project):
    (project / "data").mkdir()
    (project / "data" / "t.csv").write_text("a\n1\n")
    (task,) = read_tasks(one(project, data="data/t.csv")).tasks
    assert task.data == (str(project / "data" / "t.csv"),)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"data": ["../private/salaries.csv"]}, "reads {0}/private/salaries.csv"),
        ({"data": ["{0}/private/salaries.csv"]}, "reads {0}/private/salaries.csv"),
        ({"data": ["link.csv"]}, "reads {0}/private/salaries.csv"),
        ({"data": ["linked/salaries.csv"]}, "reads {0}/private/salaries.csv"),
        (
            {"answer": "../private/salaries.csv", "check": "dataframe"},
            "reads {0}/private/salaries.csv",
        ),
        ({"data": [".env"]}, "reads {0}/project/.env"),
        ({"tools": ["evil.py"]}, "runs {0}/project/evil.py"),
        ({"tools": ["evil"]}, "runs the module evil ({0}/project/evil.py)"),
        ({"tools": ["files={0}/private"]}, "has the tool files={0}/private"),
        ({"tools": ["sql=postgresql://x"]}, "has the tool sql=postgresql://x"),
        ({"check": {"kind": "python", "function": "evil.py:f"}}, "runs {0}/project/evil.py"),
        ({"check": {"kind": "python", "function": "no.such:f"}}, "runs the module no.such"),
    ],
)
def test_what_a_task_reads_elsewhere_and_what_it_runs_needs_the_users_word(project, fields, words):
    """Nothing is imported to find that out; paths are those behind links."""
    base = str(project.parent)
    (project / "evil.py").write_text(f"open({str(project / 'ran')!r}, 'w').close()\n{TOOL}")
    (project / ".env").write_text("KEY=1")
    (project / "link.csv").symlink_to("../private/salaries.csv")
    (project / "linked").symlink_to("../private")
    path = one(project, **json.loads(json.dumps(fields).replace("{0}", base)))
    assert refused(path).reaches == (words.replace("{0}", base),)
    assert not (project / "ran").exists()
    assert len(read_tasks(path, trusted=True).tasks) == 1


def test_in_a_home_nothing_lies_beneath_the_files_folder(project, monkeypatch):
    monkeypatch.setenv("HOME", str(project))
    (project / "tax.csv").write_text("a\n1\n")
    assert refused(one(project, data="tax.csv")).reaches == (f"reads {project / 'tax.csv'}",)


def test_an_answer_holds_for_the_tasks_and_the_code_that_they_name_as_they_are(project):
    code = project / "evil.py"
    code.write_text(TOOL)
    path = one(project, tools="evil.py")
    untrusted = refused(path)
    assert not untrusted.asked
    assert keep_answer(path, untrusted.content, allowed=True)
    assert len(read_tasks(path).tasks) == 1
    code.write_text(f"{TOOL}\nimport os\n")
    changed = refused(path)
    keep_answer(path, changed.content, allowed=False)
    assert refused(path).asked
    code.write_text(TOOL)
    keep_answer(path, untrusted.content, allowed=True)
    one(project, tools="evil.py", task="Another?")
    assert not refused(path).asked


def kinds_of(given):
    return Counter(task.kind for task in given.tasks if not task.excluded)


def test_a_part_of_the_tasks_is_of_all_kinds_and_the_same_each_time():
    """What is left out is said, by kind; an excluded task stays in the list and does not count."""
    kinds = ["sums"] * 6 + ["means"] * 6 + ["plots"] * 2
    tasks = [Task(id=f"t{n}", task="?", answer=1, kind=kind) for n, kind in enumerate(kinds)]
    broken = Task(id="broken", task="?", answer=1, excluded="no table")
    given = TaskSet(name="mixed", tasks=(broken, *tasks), remarks=("A suite.",))
    part = sample(given, 7)
    assert kinds_of(part) == {"sums": 3, "means": 2, "plots": 2}
    counts = "3 of 6 of sums, 2 of 6 of means, 2 of 2 of plots"
    said = f"7 of 14 tasks were drawn: {counts}; the others are left out."
    assert part.remarks == ("A suite.", said)
    assert part.tasks[0] is broken
    assert [t for t in given.tasks if t in part.tasks] == list(part.tasks)
    assert sample(given, 7) == part
    assert [t.id for t in part.tasks[1:4]] != ["t0", "t1", "t2"]
    assert sample(given, 14) is given
    assert sample(given, 100) is given


def test_a_part_of_tasks_without_kinds_is_drawn_from_all():
    """Not the first of the file."""
    given = TaskSet(
        name="plain", tasks=tuple(Task(id=f"t{n}", task="?", answer=1) for n in range(50))
    )
    part = sample(given, 10)
    assert len(part.tasks) == 10
    assert max(int(task.id[1:]) for task in part.tasks) >= 25
    assert part.remarks == ("10 of 50 tasks were drawn; the others are left out.",)


def test_the_smoke_test_can_be_answered_in_each_format(tmp_path):
    """By a table where code reads it, by a tool where calls are the actions."""
    for name in ("fenced", "envelope", "tool", "auto"):
        (table,) = smoke_task(name, tmp_path).data
        assert table == str(tmp_path / "smoke.csv")
        assert (tmp_path / "smoke.csv").read_text().count("\n") == 1 + 3
    task = smoke_task("json", tmp_path)
    (prices,) = load_tools(task.tools[0])
    assert (len(prices.function()), task.answer, task.data) == (3, 3, ())
