"""``kernel-agent eval`` as a user's shell starts it: real kernels, real endpoints, bad inputs."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from servers.openai_server import OpenAIServer, refused_url, text
from support.command import environment, run_command

from kernel_agent.records.store import read_trace
from kernel_agent.records.trace import Step

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "example_tasks" / "penguins.yaml"
ANSWER = "```python\nfinal_answer({})\n```"


def evaluate(folder, *arguments, code=0, **variables):
    """Run the command; return what it printed. Never a traceback."""
    words = map(str, arguments)
    done = run_command(folder, "eval", *words, OPENAI_API_KEY="none", **variables)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code in (0, 3, 4) and not done.stderr else done.stderr


def complaint(folder, *arguments, model="offline"):
    said = evaluate(folder, *arguments, code=2, KERNEL_AGENT_MODEL=model)
    assert said.startswith("kernel-agent: ")
    assert len(said.splitlines()) == 1
    return said


def script(folder, name, *replies):
    lines = [json.dumps({"content": reply}) for reply in replies]
    (folder / name).write_text("\n".join(lines) + "\n")


def tasks(folder, *entries):
    path = folder / "tasks.jsonl"
    path.write_text("\n".join(json.dumps(entry) for entry in entries))
    return path


def results(folder):
    lines = (folder / "out" / "results.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.long
def test_two_formats_are_compared_on_real_tables_and_the_second_time_nothing_is_run(tmp_path):
    """The example of the documentation: offline analyst, two formats, report and table."""
    arms = ("--format", "fenced", "--format", "envelope", "--sandbox", "none", "--limit", "3")
    arms = (*arms, "--trust")
    said = evaluate(tmp_path, EXAMPLE, "--model", "offline", *arms, "--out", "out")
    assert "6 of 6 runs have a result." in said
    assert "no task tells them apart" in said
    assert {r["success"] for r in results(tmp_path)} == {True}
    assert all((tmp_path / "out" / r["notebook"]).is_file() for r in results(tmp_path))
    for name in ("report.ipynb", "table.md", "table.json", "success.png", "measures.png"):
        assert (tmp_path / "out" / name).stat().st_size > 200
    again = evaluate(tmp_path, EXAMPLE, "--model", "offline", *arms, "--out", "out")
    assert "6 of 6 runs are there already" in again
    assert len(results(tmp_path)) == 6


@pytest.mark.long
def test_runs_of_a_task_as_it_stands_count_and_a_long_table_is_judged_whole(tmp_path):
    """A corrected answer makes another run; of 300 rows `Run.answer` has the first ones only."""
    code = "import pandas as pd\nfinal_answer(pd.DataFrame({'n': range(300)}))"
    script(tmp_path, "s.jsonl", f"```python\n{code}\n```")
    rows, arm = [{"n": n} for n in range(300)], ("--model", "scripted:s.jsonl", "--sandbox", "none")
    for wanted, success in ((rows[:-1], False), (rows, True)):
        task = {"id": "t", "task": "Which?", "answer": wanted, "check": "dataframe"}
        evaluate(tmp_path, tasks(tmp_path, task), *arm, "--format", "fenced", "--out", "out")
        assert results(tmp_path)[-1]["success"] is success
        (row,) = json.loads((tmp_path / "out" / "table.json").read_text())["arms"]
        assert (row["runs"], row["success"]["value"]) == (1, success)


@pytest.mark.long
def test_parse_failures_steps_and_wrong_answers_are_counted_for_each_arm(tmp_path):
    """Scripts may be one for each task and format; tools are the user's."""
    (tmp_path / "tool.py").write_text(
        "from kernel_agent import tool\n\n@tool\ndef twice(n: int) -> int:\n"
        "    'Return n two times.'\n    return 2 * n\n"
    )
    path = tasks(
        tmp_path,
        {"id": "a", "task": "Twice 21?", "tools": "tool.py", "answer": 42},
        {"id": "b", "task": "Two?", "answer": 2},
    )
    script(tmp_path, "smoke.jsonl", ANSWER.format(3))
    script(tmp_path, "a.jsonl", "I think so.", "```python\nn = twice(21)\n```", ANSWER.format("n"))
    script(tmp_path, "b.jsonl", ANSWER.format(3))
    evaluate(
        tmp_path, path, "--model", "scripted:{task}.jsonl", "--format", "fenced", "--sandbox",
        "none", "--out", "out", "--trust",
    )  # fmt: skip
    a, b = sorted(results(tmp_path), key=lambda r: r["task_id"])
    assert (a["success"], a["steps"], a["parse_failures"], a["tool_calls"]) == (True, 2, 1, 1)
    assert a["model_calls"] == 3
    assert (b["success"], b["reason"]) == (False, "expected '2', got 3") or not b["success"]


def test_an_evaluation_says_first_that_nothing_confines_an_arm(tmp_path):
    """Once, however many arms there are; a level that does not exist is refused before."""
    path = tasks(tmp_path, {"id": "a", "task": "Two?", "answer": 2})
    script(tmp_path, "s.jsonl", ANSWER.format(2))
    arms = ("--model", "scripted:s.jsonl", "--format", "fenced", "--format", "envelope")
    said = evaluate(tmp_path, path, *arms, "--sandbox", "none", "--out", "out")
    assert said.startswith("NOT SANDBOXED: ")
    assert said.count("NOT SANDBOXED") == 1
    assert "there is no sandbox level" in complaint(tmp_path, path, "--sandbox", "no", "--out", "o")
    assert not (tmp_path / "o").exists()


def call(name, **arguments):
    """A native call as an endpoint sends it."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": f"call-{name}", "type": "function", "function": function}


@pytest.mark.long
def test_calls_whose_arguments_had_to_be_repaired_are_counted_beside_failed_ones(tmp_path):
    """In the result, in the table and, by call, in the trace."""
    (tmp_path / "tool.py").write_text(
        "from kernel_agent import tool\n\n@tool\ndef twice(n: int) -> int:\n"
        "    'Return n two times.'\n    return 2 * n\n"
    )
    path = tasks(tmp_path, {"id": "a", "task": "Twice 21?", "tools": "tool.py", "answer": 42})
    odd = {"id": "c2", "type": "function", "function": {"name": "twice", "arguments": "{'n': 21,}"}}
    cut = {"id": "c3", "type": "function", "function": {"name": "twice", "arguments": '{"n": '}}
    replies = [
        text("", tool_calls=[call("fruit_prices")]),
        text("", tool_calls=[call("final_answer", answer=3)]),
        text("", tool_calls=[call("twice", n=21), odd, cut]),
        text("", tool_calls=[call("final_answer", answer=42)]),
    ]
    with OpenAIServer(replies) as server:
        evaluate(
            tmp_path, path, "--model", "m", "--base-url", server.url, "--format", "json",
            "--sandbox", "interpreter", "--at-once", "1", "--out", "out", "--trust",
        )  # fmt: skip
    (a,) = results(tmp_path)
    assert (a["success"], a["failed_calls"], a["repaired_calls"]) == (True, 1, 1)
    table = (tmp_path / "out" / "table.md").read_text().splitlines()
    head, _, row = [line for line in table if line.startswith("|")][:3]
    columns = dict(zip(head.split(" | "), row.split(" | "), strict=True))
    assert (columns["failed calls"], columns["repaired calls |"]) == ("1", "1 |")
    trace = read_trace((tmp_path / "out" / a["notebook"]).parent)
    first = next(record for record in trace if isinstance(record, Step))
    assert [made.repaired for made in first.action.calls] == [False, True, False]


@pytest.mark.long
def test_what_a_model_is_asked_ends_with_the_form_and_its_answers_are_judged_by_value(tmp_path):
    """Where calls are the actions the smoke test has a tool; an answer beside calls is marked."""
    (tmp_path / "tool.py").write_text(
        "from kernel_agent import tool\n\n@tool\ndef twice(n: int) -> int:\n"
        "    'Return n two times.'\n    return 2 * n\n"
    )
    path = tasks(
        tmp_path,
        {"id": "a", "task": "Twice 45,500?", "tools": "tool.py", "answer": 91000,
         "check": "number", "kind": "sums"},
        {"id": "b", "task": "Half of it?", "answer": 45500, "check": "number"},
    )  # fmt: skip
    said = "About 91,000: because 2 times 45,500 is that."
    replies = [
        text("", tool_calls=[call("fruit_prices")]),
        text("", tool_calls=[call("final_answer", answer=3)]),
        text("", tool_calls=[call("twice", n=45500), call("final_answer", answer=said)]),
        text("", tool_calls=[call("final_answer", answer="45,500 of 91,000")]),
    ]
    with OpenAIServer(replies) as server:
        printed = evaluate(
            tmp_path, path, "--model", "m", "--base-url", server.url, "--format", "json",
            "--sandbox", "none", "--at-once", "1", "--out", "out", "--trust",
        )  # fmt: skip
        asked = [request.body["messages"][-1]["content"] for request in server.requests]
    a, b = results(tmp_path)
    form = "Answer with the number alone: no sentence, no unit."
    assert f"Twice 45,500?\n\n{form}" in asked[2]
    assert asked[2].count(form) == 1
    assert (a["success"], a["unseen"], a["model_calls"], a["failed_calls"]) == (True, True, 1, 0)
    assert (b["success"], b["form"], b["unseen"]) == (None, True, False)
    assert "arm works: json / m / none" in printed
    assert "1 answer of json / m / none could not be judged, 1 of them for their form" in printed
    assert "1 answer of json / m / none stood in one reply beside calls" in printed
    assert server.url not in printed


@pytest.mark.long
def test_an_arm_whose_model_is_down_is_left_out_with_one_line_and_its_exit_code(tmp_path):
    """The other arm is measured all the same."""
    path = tasks(tmp_path, {"id": "a", "task": "How many rows does the table have?", "answer": 1,
                            "check": "number", "data": "t.csv"})  # fmt: skip
    (tmp_path / "t.csv").write_text("a\n1\n")
    with refused_url() as url:
        said = evaluate(
            tmp_path, path, "--model", "gone", "--model", "offline", "--base-url", url,
            "--format", "fenced", "--sandbox", "none", "--out", "out", code=4,
            KERNEL_AGENT_MAX_RETRIES="0",
        )  # fmt: skip
    left_out = [line for line in said.splitlines() if line.startswith("arm left out: ")]
    assert len(left_out) == 1
    assert "gone" in left_out[0]
    assert "model_error" in left_out[0]
    assert "1 of 2 runs have a result." in said
    assert [r["success"] for r in results(tmp_path)] == [True]


@pytest.mark.parametrize(
    ("verdict", "success"), [('{"pass": true, "reason": "ok"}', True), ("Lovely answer!", None)]
)
@pytest.mark.long
def test_a_judge_decides_by_the_rubric_and_its_nonsense_is_no_verdict(tmp_path, verdict, success):
    """A real endpoint; nonsense is asked again twice and leaves the answer not judged."""
    path = tasks(tmp_path, {"id": "r", "task": "Say hello", "check": {"kind": "rubric",
                            "rubric": "Greets."}})  # fmt: skip
    script(tmp_path, "s.jsonl", ANSWER.format("'hello'"))
    with OpenAIServer([text(verdict)], repeat_last=True) as server:
        said = evaluate(
            tmp_path, path, "--model", "scripted:s.jsonl", "--format", "fenced", "--sandbox",
            "none", "--judge", "strict", "--judge-base-url", server.url, "--out", "out",
        )  # fmt: skip
        assert len(server.requests) == (1 if success else 3)
    assert results(tmp_path)[0]["success"] is success
    if success is None:
        assert "answered 3 times without a verdict" in results(tmp_path)[0]["reason"]
        assert "1 answer of fenced" in said
        assert "could not be judged: right and wrong are counted without" in said


def test_a_judge_that_is_not_there_in_the_end_leaves_the_run_as_it_was(tmp_path):
    """The run has answered, and its steps and notebook stand: only the verdict is missing."""
    path = tasks(tmp_path, {"id": "r", "task": "Say hello", "check": {"kind": "rubric",
                            "rubric": "Greets."}})  # fmt: skip
    script(tmp_path, "s.jsonl", ANSWER.format("'hello'"))
    script(tmp_path, "judge-1.jsonl", '{"pass": true, "reason": "ok"}')
    asked = (
        path, "--model", "scripted:s.jsonl", "--format", "fenced", "--sandbox", "interpreter",
        "--judge",
    )  # fmt: skip
    evaluate(tmp_path, *asked, "scripted:judge-{trial}.jsonl", "--trials", "2", "--out", "out")
    first, second = sorted(results(tmp_path), key=lambda r: r["trial"])
    assert (first["status"], first["success"]) == ("answered", True)
    assert (second["status"], second["success"], second["steps"]) == ("answered", None, 1)
    assert second["reason"].startswith("the judge failed: ")
    assert "judge-2.jsonl" in second["reason"]
    assert "gone.jsonl" in complaint(tmp_path, *asked, "scripted:gone.jsonl", "--out", "never")


@pytest.mark.long
def test_an_evaluation_that_is_killed_goes_on_where_it_was(tmp_path):
    """Killed without warning while a cell runs; then Ctrl-C; then to the end."""
    path = tasks(
        tmp_path,
        {"id": "fast", "task": "One?", "answer": 1},
        {"id": "slow", "task": "Two?", "answer": 2},
    )
    script(tmp_path, "smoke.jsonl", ANSWER.format(3))
    script(tmp_path, "fast.jsonl", ANSWER.format(1))
    slow = "```python\nimport os, time\nif not os.path.exists('{0}'):\n    open('{1}', 'w')\n"
    slow += "    time.sleep(60)\nfinal_answer(2)\n```"
    script(tmp_path, "slow.jsonl", slow.format(tmp_path / "go", tmp_path / "waits"))
    arguments = [
        str(path), "--model", "scripted:{task}.jsonl", "--format", "fenced", "--sandbox", "none",
        "--out", "out",
    ]  # fmt: skip
    for how, code in ((signal.SIGKILL, -9), (signal.SIGINT, 130)):
        (tmp_path / "waits").unlink(missing_ok=True)
        process = subprocess.Popen(
            [sys.executable, "-m", "kernel_agent", "eval", *arguments],
            cwd=tmp_path, env=environment(OPENAI_API_KEY="none"), stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        wait_for((tmp_path / "waits").exists)
        wait_for(lambda: len(results(tmp_path)) >= 1)
        if how == signal.SIGKILL:  # while one writes, another may not
            assert f"another evaluation (process {process.pid}) is writing to" in complaint(
                tmp_path, *arguments
            )
        process.send_signal(how)
        said, _ = process.communicate(timeout=30)
        assert process.returncode == code
        if how == signal.SIGINT:
            assert "goes on" in said.splitlines()[-1]
            assert (tmp_path / "out" / "report.ipynb").exists()
    (tmp_path / "go").touch()
    evaluate(tmp_path, *arguments)
    assert [r["task_id"] for r in results(tmp_path)] == ["fast", "slow"]
    slow_run = tmp_path / "out" / "runs" / results(tmp_path)[1]["run_id"]
    assert sorted(p.name for p in slow_run.iterdir()) == ["1", "2", "3", "result.json"]


def wait_for(what, seconds=30):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.long
def test_each_bad_input_is_one_line_and_nothing_is_run(tmp_path):
    """Exit code 2, and no folder is left behind."""
    good = {"id": "a", "task": "One?", "answer": 1}
    cases = [
        ([tasks(tmp_path, good, {"id": "b"})], "tasks.jsonl, line 2: task 'b': task is missing"),
        (["gone.yaml"], "gone.yaml cannot be read: No such file"),
    ]
    for arguments, what in cases:
        assert what in complaint(tmp_path, *arguments, "--out", "out")
    bad_check = tasks(tmp_path, good, {**good, "id": "b", "check": "similar"})
    assert "line 2: task 'b': unknown check 'similar'" in complaint(tmp_path, bad_check)
    # A key is there, and no model named: the offline analyst is not what is meant.
    unnamed = complaint(tmp_path, tasks(tmp_path, good), model="")
    assert "name the model that is evaluated" in unnamed
    no_data = tasks(tmp_path, {**good, "data": "gone.csv"})
    assert "line 1: task 'a': there is no file gone.csv" in complaint(tmp_path, no_data)
    rubric = tasks(tmp_path, {"id": "r", "task": "x", "check": {"kind": "rubric", "rubric": "y"}})
    assert "--judge NAME" in complaint(tmp_path, rubric)
    fine = tasks(tmp_path, good)
    assert "unknown format 'yaml'" in complaint(tmp_path, fine, "--format", "yaml")
    assert "unknown engine 'slurm'" in complaint(tmp_path, fine, "--on", "slurm", "--out", "o2")
    placed = complaint(tmp_path, fine, "--on", "dask:tcp://h:1", "--at-once", "3", "--out", "o2")
    assert "--at-once is not for dask:tcp://h:1" in placed
    assert not (tmp_path / "o2").exists()
    assert "needs --max-cost" in complaint(tmp_path, fine, "--max-total-cost", "3")
    said = complaint(tmp_path, fine, "--base-url", "http://me:s3cret@localhost:1/v1")
    assert "put the password of http://localhost:1/v1 into OPENAI_API_KEY" in said
    assert "holds no evaluation" in complaint(tmp_path, tmp_path, "--report")
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "runs").exists()
