"""A campaign: resumed, bounded, capped; one writer; nothing lost; a report that says no more."""

import asyncio
import dataclasses
import json
from pathlib import Path

import nbformat
import pytest

from kernel_agent.errors import InputError, KernelAgentError, UsageError
from kernel_agent.evaluation.campaign import Plan, arms_of, evaluate
from kernel_agent.evaluation.engines import Here, WorkerLost, engine_of
from kernel_agent.evaluation.report import _text, write_report
from kernel_agent.evaluation.specs import Arm, RunResult, short_names
from kernel_agent.evaluation.store import RESULTS_NAME, Store, read_results
from kernel_agent.evaluation.tables import compare_folder
from kernel_agent.evaluation.tasks import Task, TaskSet


def plan(count=3, formats=("fenced", "envelope"), models=("offline",), **more):
    tasks = tuple(Task(id=f"t{n}", task="?", answer=1) for n in range(count))
    arms = arms_of(formats, models, ("none",))
    return Plan(tasks=TaskSet(name="test", tasks=tasks), arms=arms, **more)


def reported(folder: Path) -> str:
    """Return what the report says, without drawing its figures, which takes a second."""
    return _text(compare_folder(folder))


class Scripted:
    """Carries out runs by a function of the spec, and counts them."""

    def __init__(self, say=lambda spec: {}):
        self.say, self.ran, self.now, self.most = say, [], 0, 0

    async def __call__(self, spec):
        self.ran.append(spec)
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        self.now -= 1
        said = self.say(spec)
        if isinstance(said, BaseException):
            raise said
        return RunResult(**{
            "run_id": spec.run_id, "task_id": spec.task.id, "arm": spec.arm.name,
            "trial": spec.trial, "status": "answered", "success": True, "steps": 2, **said,
        })  # fmt: skip

    @property
    def tasks(self):
        return [spec.task.id for spec in self.ran if spec.task.id != "smoke"]


class Kept(Scripted):
    """Leaves on disk what a worker does: a folder for each attempt, and the result of each."""

    async def __call__(self, spec):
        folder = Path(spec.folder) / "runs" / spec.run_id
        number = 1 + len(list(folder.glob("[0-9]*")))
        (folder / str(number)).mkdir(parents=True)
        result = await super().__call__(spec)
        (folder / "result.json").write_text(result.model_dump_json())
        return result


async def go(folder, what, work, at_once=2, tell=None):
    with Store(folder) as store:
        engine = Here(places=at_once, work=work)
        return await evaluate(what, store, engine, tell=tell or (lambda _line: None))


async def test_every_arm_does_every_task_and_no_more_at_a_time_than_was_said(tmp_path):
    """And the second time there is nothing left to do."""
    work = Scripted()
    outcome = await go(tmp_path, plan(trials=2), work, at_once=3)
    assert outcome.complete
    assert (outcome.planned, len(work.tasks), work.most) == (12, 12, 3)
    again = Scripted()
    outcome = await go(tmp_path, plan(trials=2), again)
    assert (outcome.done, again.ran) == (12, [])
    assert len(read_results(tmp_path)) == 12


async def test_what_was_stopped_goes_on_where_it_was(tmp_path):
    """Also when the last line is half written, and a worker's result never reached the lines."""
    work = Scripted()
    work.say = lambda spec: (
        going.cancel() and asyncio.CancelledError() if len(work.tasks) == 4 else {}
    )
    going = asyncio.ensure_future(go(tmp_path, plan(), work, at_once=1))
    with pytest.raises(asyncio.CancelledError):
        await going
    results = tmp_path / RESULTS_NAME
    with results.open("ab") as file:
        file.write(b'{"run_id": "abc')
    assert len(read_results(tmp_path)) == 3
    kept = work.ran[-1]
    place = tmp_path / "runs" / kept.run_id
    place.mkdir()
    (place / "result.json").write_text(
        RunResult(
            run_id=kept.run_id,
            task_id=kept.task.id,
            arm=kept.arm.name,
            trial=1,
            status="answered",
            success=True,
        ).model_dump_json()
    )
    again = Scripted()
    outcome = await go(tmp_path, plan(), again)
    assert outcome.complete
    assert len(again.tasks) == 2
    assert len(results.read_text().splitlines()) == 6
    assert all(json.loads(line) for line in results.read_text().splitlines())


async def test_a_line_that_is_damaged_in_the_middle_is_told_with_its_number(tmp_path):
    """It is not what a killed process leaves: somebody has to look."""
    await go(tmp_path, plan(count=1), Scripted())
    file = tmp_path / RESULTS_NAME
    file.write_text("{nonsense}\n" + file.read_text())
    with pytest.raises(InputError, match="line 1: not a result"):
        read_results(tmp_path)


def test_two_evaluations_never_write_to_one_folder(tmp_path):
    """The second is told who holds it; when the first is done the folder is free."""
    import os

    first = rf"process {os.getpid()}\) is writing to"
    with Store(tmp_path), pytest.raises(InputError, match=first):
        Store(tmp_path).__enter__()
    with Store(tmp_path):
        pass


async def test_an_arm_that_fails_its_smoke_test_takes_no_part(tmp_path):
    """The others do; it is tried again the next time, and then does what it missed."""
    down = Scripted(
        lambda s: (
            {"status": "model_error", "success": False, "reason": "refused"}
            if s.arm.format == "envelope"
            else {}
        )
    )
    lines = []
    outcome = await go(tmp_path, plan(), down, tell=lines.append)
    assert list(outcome.failed_arms.values()) == ["model_error: refused"]
    assert (outcome.done, len(down.tasks)) == (3, 3)
    assert any("arm left out: envelope: model_error" in line for line in lines)
    words = " ".join(compare_folder(tmp_path).words)
    assert "**envelope** took no part: model_error: refused." in words
    assert "Only one arm has results: nothing can be compared" in words
    up = Scripted()
    assert (await go(tmp_path, plan(), up)).complete
    assert len(up.tasks) == 3
    assert "took no part" not in " ".join(compare_folder(tmp_path).words)


OTHER_ENDINGS = ("time_limit", "token_limit", "loop_detected", "denied")


@pytest.mark.parametrize(
    "ending",
    [
        {"status": "step_limit"},
        *(pytest.param({"status": status}, marks=pytest.mark.long) for status in OTHER_ENDINGS),
        {"status": "kernel_lost", "model_calls": 1},
        {"status": "model_error", "model_calls": 3},
    ],
)
async def test_an_arm_that_answers_nothing_takes_part(tmp_path, ending):
    """And stands in the report with none of n, and the interval of that."""
    weak = Scripted(
        lambda s: {**ending, "success": False, "reason": "too hard"} if s.arm.model == "m" else {}
    )
    lines = []
    what = plan(formats=("fenced",), models=("m", "offline"))
    outcome = await go(tmp_path, what, weak, tell=lines.append)
    assert (outcome.failed_arms, outcome.complete, len(weak.tasks)) == ({}, True, 6)
    why = f"it gave no answer ({ending['status']}: too hard)"
    assert f"arm fails the smoke test: m: {why}; it takes part all the same" in lines
    said = reported(tmp_path)
    assert f"**m** failed the smoke test: {why}." in said
    assert "**m**: 0% of 3 tasks right (95 % interval 0% to 56%)" in said
    assert "**m** against **offline**, success on 3 tasks" in said


@pytest.mark.parametrize("status", ["model_error", "kernel_lost", "refused"])
async def test_an_arm_that_cannot_begin_takes_no_part(tmp_path, status):
    """No reply of the endpoint, no kernel, or nothing that could be set up."""
    down = Scripted(lambda _s: {"status": status, "success": False, "reason": "gone"})
    outcome = await go(tmp_path, plan(formats=("fenced",)), down)
    assert list(outcome.failed_arms.values()) == [f"{status}: gone"]
    assert down.tasks == []


async def test_smoke_tests_are_no_more_at_a_time_than_was_said(tmp_path):
    """A server with one slot would cut one reply for the other."""
    work = Scripted()
    what = plan(count=1, formats=("fenced", "envelope", "tool"), models=("m", "n"))
    await go(tmp_path, what, work, at_once=1)
    assert (len(work.ran), work.most) == (12, 1)


async def test_a_smoke_test_that_passed_yesterday_is_no_pass_today(tmp_path):
    """An arm with work left is tried again, with a result kept from before set aside."""
    await go(tmp_path, plan(count=1), Scripted())
    work = Scripted()
    await go(tmp_path, plan(count=2), work)
    assert [spec.task.id for spec in work.ran].count("smoke") == 2


async def test_an_endpoint_that_goes_down_ends_its_arm_after_five_errors(tmp_path):
    """Not the offline analyst, whose errors are about the question."""
    error = {"status": "model_error", "success": False, "reason": "refused"}
    work = Scripted(lambda s: {} if s.task.id == "smoke" else error)
    outcome = await go(tmp_path, plan(count=20, formats=("fenced",), models=("m",)), work, 1)
    assert (len(work.tasks), outcome.complete) == (5, False)
    work = Scripted(lambda s: {} if s.task.id == "smoke" else error)
    await go(tmp_path / "2", plan(count=20, formats=("fenced",)), work, 1)
    assert len(work.tasks) == 20


async def test_the_cap_on_money_is_never_passed_by_what_is_started(tmp_path):
    """Each run's own cap is set aside before it starts; what it did not spend is free again."""
    work = Kept(lambda s: {"cost_usd": 0.25, "judge_cost_usd": 0.05})
    what = plan(count=50, formats=("fenced",), settings={"max_cost": 0.5}, max_total_cost=3.0)
    outcome = await go(tmp_path, what, work, at_once=4)
    assert outcome.out_of_money
    spent = 0.30 * len(work.ran)
    assert 2.0 < spent <= 3.0
    again = Kept(lambda s: {"cost_usd": 0.25})
    assert (await go(tmp_path, dataclasses.replace(what, max_total_cost=2.0), again)).out_of_money
    assert again.ran == []
    with pytest.raises(UsageError, match="needs --max-cost"):
        plan(max_total_cost=1.0)


async def test_what_other_plans_and_repeated_runs_have_cost_in_a_folder_counts_against_the_cap(
    tmp_path,
):
    """With their smoke tests. Money that is gone is gone, whatever it was spent on."""
    work = Kept(lambda s: {"cost_usd": 0.4, "status": "model_error", "model_calls": 1})
    capped = {"formats": ("fenced",), "settings": {"max_cost": 0.5}}
    await go(tmp_path, plan(count=2, **capped, max_total_cost=9.0), work)
    lines = []
    what = plan(count=2, **capped, models=("m",), max_total_cost=1.6)
    other = Kept()
    assert (await go(tmp_path, what, other, tell=lines.append)).out_of_money
    assert other.ran == []
    assert "no more runs are started: 1.2000 of 1.6 USD spent or set aside" in lines
    what = plan(count=2, **capped, repeat=("model_error",), max_total_cost=2.4)
    again = Kept(lambda s: {"cost_usd": 0.4})
    assert (await go(tmp_path, what, again, at_once=1)).out_of_money
    assert len(again.ran) == 2  # 1.2 at first, and 0.4 twice: 0.5 more would be too much


async def test_an_attempt_that_was_cut_off_counts_for_what_it_might_have_cost(tmp_path):
    """Lost with its worker or killed with the evaluation: nobody knows what it had spent."""
    lost = Kept(lambda s: {} if s.task.id == "smoke" else WorkerLost("gone"))
    what = plan(count=9, formats=("fenced",), settings={"max_cost": 1.0}, max_total_cost=3.0)
    outcome = await go(tmp_path, what, lost)
    assert (len(lost.tasks), outcome.lost, outcome.out_of_money) == (3, 3, True)
    again = Kept()
    assert (await go(tmp_path, what, again)).out_of_money
    assert again.ran == []


async def test_each_question_of_a_task_may_cost_what_one_question_may(tmp_path):
    """A task of three needs three caps set aside."""
    tasks = tuple(Task(id=f"t{n}", task=["a", "b", "c"], answer=1) for n in range(9))
    what = dataclasses.replace(
        plan(formats=("fenced",), settings={"max_cost": 1.0}, max_total_cost=7.0),
        tasks=TaskSet(name="long", tasks=tasks),
    )
    work = Kept(lambda s: {} if s.task.id == "smoke" else {"cost_usd": 3.0})
    assert (await go(tmp_path, what, work, at_once=4)).out_of_money
    assert len(work.tasks) == 2


async def test_a_lost_worker_loses_its_run_only_and_that_is_run_again(tmp_path):
    """Lost is no result."""
    work = Scripted(lambda s: WorkerLost("gone") if s.task.id == "t1" else {})
    outcome = await go(tmp_path, plan(), work)
    assert (outcome.done, outcome.lost) == (4, 2)
    again = Scripted()
    assert (await go(tmp_path, plan(), again)).complete
    assert sorted(again.tasks) == ["t1", "t1"]


async def test_a_run_that_is_cancelled_from_within_is_told_and_stops_no_other(tmp_path):
    """Nobody asked for a stop: every other run has its result, and this one is run again."""
    lines = []
    work = Scripted(lambda spec: asyncio.CancelledError() if spec.task.id == "t1" else {})
    outcome = await go(tmp_path, plan(), work, at_once=1, tell=lines.append)
    assert (outcome.planned, outcome.done, outcome.lost) == (6, 4, 2)
    assert sum("lost, not judged" in line for line in lines) == 2
    assert sorted(work.tasks) == ["t0", "t0", "t1", "t1", "t2", "t2"]
    again = Scripted()
    assert (await go(tmp_path, plan(), again)).complete
    assert again.tasks == ["t1", "t1"]


async def test_results_of_a_status_are_repeated_on_request(tmp_path):
    """After the endpoint is mended."""
    work = Scripted(lambda s: {"status": "model_error"} if s.task.id == "t1" else {})
    await go(tmp_path, plan(), work)
    again = Scripted()
    await go(tmp_path, plan(repeat=("model_error",)), again)
    assert sorted(again.tasks) == ["t1", "t1"]


def test_a_plan_that_makes_no_sense_is_refused():
    """A rubric without a judge, the same arm twice."""
    task = Task(id="r", task="?", check={"kind": "rubric", "rubric": "nice"})
    with pytest.raises(UsageError, match="'r' is judged by a rubric: name a judging model"):
        Plan(tasks=TaskSet(name="x", tasks=(task,)), arms=(Arm(),))
    with pytest.raises(UsageError, match="twice"):
        Plan(tasks=plan().tasks, arms=(Arm(), Arm()))
    with pytest.raises(UsageError, match="unknown engine 'slurm'"):
        engine_of("slurm", places=2)


def test_places_are_not_for_workers_that_are_there_already():
    """As many runs go there as they take; a cluster of one's own has as many as are asked for."""
    with pytest.raises(UsageError, match="--at-once is not for dask:tcp://h:8786: as many runs"):
        engine_of("dask:tcp://h:8786", places=4)
    engines = [engine_of("dask:tcp://h:8786"), engine_of("dask", places=4), engine_of("local")]
    assert [engine.places for engine in engines] == [2, 4, 2]


async def test_a_judge_that_cannot_be_asked_is_told_before_a_run_is_paid_for(tmp_path):
    """Its script is missing, or it has no prices, so that no cap on money could hold."""
    task = Task(id="r", task="?", check={"kind": "rubric", "rubric": "nice"})
    judge = Arm(model=f"scripted:{tmp_path / 'gone.jsonl'}")
    what = Plan(tasks=TaskSet(name="x", tasks=(task,)), arms=(Arm(),), judge=judge)
    work = Scripted()
    with pytest.raises(KernelAgentError, match=r"gone\.jsonl"):
        await go(tmp_path, what, work)
    capped = {"settings": {"max_cost": 1.0}, "max_total_cost": 3.0}
    priceless = dataclasses.replace(what, judge=Arm(model="strict"), **capped)
    with pytest.raises(UsageError, match=r"a cost limit needs prices: .*strict"):
        await go(tmp_path, priceless, work)
    assert work.ran == []
    assert (await go(tmp_path, dataclasses.replace(priceless, settings={}, max_total_cost=None),
                     work)).complete  # fmt: skip


# --- words ---------------------------------------------------------------------------------------


def outcome_of(right_of_first, right_of_second):
    """Successes by task number, for each of two arms."""

    def say(spec):
        right = right_of_first if spec.arm.format == "fenced" else right_of_second
        number = int(spec.task.id.removeprefix("t")) if spec.task.id != "smoke" else 0
        return {
            "success": number in right,
            "steps": 3 if spec.arm.format == "fenced" else 2,
            "reason": "" if number in right else "``` | <script>alert(1)</script>",
        }

    return say


@pytest.mark.parametrize(
    ("count", "first", "second", "said", "unsaid"),
    [
        (4, range(4), range(4), "no task tells them apart", "is better"),
        (5, range(5), [], "too few tasks to tell. Only 5", "is better ("),
        (12, range(12), range(3), "**fenced** is better (9", "too few"),
        (12, range(7), range(5, 12), "no difference is shown", "is better ("),
    ],
)
async def test_the_words_say_what_the_numbers_can_show_and_no_more(
    tmp_path, count, first, second, said, unsaid
):
    """Five tasks show nothing, whatever they say; twelve can."""
    await go(tmp_path, plan(count=count), Scripted(outcome_of(set(first), set(second))))
    words = "\n".join(compare_folder(tmp_path).words)
    assert said in words
    assert unsaid not in words
    assert ("needs fewer steps" in words) == (count >= 6)


@pytest.mark.parametrize(
    ("right", "said"),
    [(range(8), "tells them apart: both got all right."), ([], "apart: both got all wrong.")],
)
async def test_tasks_that_are_too_easy_or_too_hard_for_both_are_told(tmp_path, right, said):
    """Such tasks cannot show a difference, whatever their number."""
    await go(tmp_path, plan(count=8), Scripted(outcome_of(set(right), set(right))))
    assert said in " ".join(compare_folder(tmp_path).words)


async def test_without_any_result_no_arm_is_said_to_have_one(tmp_path):
    """As after a stop before the first run ended."""
    down = Scripted(lambda _: {"status": "model_error", "success": False, "reason": "refused"})
    await go(tmp_path, plan(), down)
    words = " ".join(compare_folder(tmp_path).words)
    assert "No arm has a result" in words
    assert "was tried once" not in words


async def test_arms_are_called_by_what_they_differ_in_and_the_rest_is_said_once(tmp_path):
    """Long names that are alike but for a word hide that word."""
    await go(tmp_path, plan(), Scripted())
    comparison = compare_folder(tmp_path)
    assert [row.arm for row in comparison.arms] == ["fenced", "envelope"]
    assert comparison.common == "model offline, sandbox none"
    assert "In all arms: model offline, sandbox none." in reported(tmp_path)


async def test_an_address_stands_in_a_name_only_where_it_tells_arms_apart(tmp_path):
    """What an arm is called is no address; where it was asked stands once, in the report."""
    ends = [Arm(model="m", format=f, base_url="http://one/v1") for f in ("fenced", "json")]
    assert short_names(ends)[0] == {ends[0].name: "fenced", ends[1].name: "json"}
    assert short_names(ends[:1]) == ({ends[0].name: "fenced / m / auto"}, "")
    two = [Arm(model="m", base_url="http://one/v1"), Arm(model="m", base_url="http://two/v1")]
    assert list(short_names(two)[0].values()) == ["m@http://one/v1", "m@http://two/v1"]
    what = dataclasses.replace(plan(), arms=tuple(ends))
    lines = []
    await go(tmp_path, what, Scripted(), tell=lines.append)
    assert not [line for line in lines if "http" in line]
    report = reported(tmp_path)
    assert report.count("http") == 1
    assert "Asked at: `http://one/v1`" in report


async def test_who_looks_on_is_not_told_what_is_expected(tmp_path):
    """The reasons stand in the report; a line says why there is no answer."""
    said = {
        "t0": {"success": False, "reason": "expected 42, got 41"},
        "t1": {"success": None, "form": True, "reason": "expected the number 42: several"},
        "t2": {"success": False, "status": "step_limit", "reason": "too many steps"},
    }
    lines = []
    work = Scripted(lambda spec: said.get(spec.task.id, {}))
    await go(tmp_path, plan(formats=("fenced",)), work, tell=lines.append)
    assert not [line for line in lines if "42" in line]
    assert [line for line in lines if "step_limit, wrong" in line and "too many steps" in line]
    report = reported(tmp_path)
    assert "expected 42, got 41" in report
    assert (
        "1 answer of **fenced / offline / none** could not be judged, 1 of them for their form"
        in (report)
    )
    assert "0% of 2 tasks right (95 % interval 0% to 66%); 1 answer not judged" in report
    assert "## Pairs" not in report


async def test_requests_tokens_and_failed_calls_are_compared_and_their_ratio_has_an_interval(
    tmp_path,
):
    """A reply that was asked for again is a request and no step."""

    def say(spec):
        more = spec.arm.format == "json"
        return {"model_calls": 4 if more else 2, "prompt_tokens": 300 if more else 100,
                "completion_tokens": 10, "failed_calls": int(more), "unseen": more}  # fmt: skip

    await go(tmp_path, plan(count=8, formats=("fenced", "json")), Scripted(say))
    comparison = compare_folder(tmp_path)
    (pair,) = comparison.pairs
    ratio = pair.ratios["requests"]
    assert (ratio.low, ratio.value, ratio.high) == (2.0, 2.0, 2.0)
    assert pair.ratios["failed_calls"] is None
    words = " ".join(comparison.words)
    assert "needs more requests than **fenced**: +2 a task on average" in words
    assert "3.00 times as many (3.00 to 3.00)" in words
    assert "8 answers of **json** stood in one reply beside calls" in words
    write_report(tmp_path)
    report = (tmp_path / "table.md").read_text()
    assert "| fenced | json | prompt tokens | +200 (+200 to +200) | 3.00 (3.00 to 3.00) |" in report
    assert "| arm | tasks | success (95 % Wilson) | not judged | requests | steps |" in report


async def test_the_report_names_the_kinds_on_which_arms_differ_and_links_each_run(tmp_path):
    """A task has its question, kind and level, and the steps of its runs with their notebooks."""
    tasks = tuple(
        Task(id=f"t{n}", task=f"What is | {n}?", answer=1, kind=kind, level="hard")
        for n, kind in enumerate(["sums", "sums", "means"])
    )
    what = dataclasses.replace(plan(), tasks=TaskSet(name="kinds", tasks=tasks))
    work = Scripted(lambda s: {
        "success": s.task.kind == "sums" or s.arm.format == "fenced",
        "notebook": f"runs/{s.run_id}/1/run.ipynb", "model_calls": 3,
    })  # fmt: skip
    await go(tmp_path, what, work)
    report = reported(tmp_path)
    kinds = report.partition("## By kind of task")[2].splitlines()
    assert kinds[6:8] == [
        "| means | 1 | 1/1, 3 requests | 0/1, 3 requests |",
        "| sums | 2 | 2/2, 3 requests | 2/2, 3 requests |",
    ]
    run = next(spec for spec in work.ran if spec.task.id == "t0" and spec.arm.format == "fenced")
    assert "| t0 | `What is \\| 0?` | `sums` | `hard` | 1/1 in [2](runs/" in report
    assert f"[2](runs/{run.run_id}/1/run.ipynb)" in report


@pytest.mark.long
async def test_the_report_is_a_notebook_whose_cells_give_what_it_shows(tmp_path):
    """It is valid, holds both pictures, and nothing that a model wrote is live in it."""
    work = Scripted(outcome_of({0, 1}, {1}))
    await go(tmp_path, plan(), work)
    path = write_report(tmp_path)
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    shown = [o["data"] for c in notebook.cells for o in c.get("outputs", ())]
    assert sum("image/png" in data for data in shown) == 2
    failures = next(c for c in notebook.cells if c["id"] == "failures")
    listed = failures.outputs[0]["data"]["text/markdown"]
    assert listed.count("`''' | <script>alert(1)</script>`") == 3
    assert (tmp_path / "table.md").read_text().startswith("# Comparison on 3 tasks of test")
    table = json.loads((tmp_path / "table.json").read_text())
    assert [row["success"]["value"] for row in table["arms"]] == pytest.approx([2 / 3, 1 / 3])


@pytest.mark.long
async def test_the_report_runs_again_and_shows_the_same(tmp_path):
    """A colleague runs all cells."""
    import nbclient

    await go(tmp_path, plan(), Scripted(outcome_of({0, 1}, {1})))
    path = write_report(tmp_path)
    notebook = nbformat.read(path, as_version=4)
    before = [list(c.get("outputs", ())) for c in notebook.cells]
    client = nbclient.NotebookClient(
        notebook, resources={"metadata": {"path": str(tmp_path)}}, timeout=60
    )
    await client.async_execute()
    after = [list(c.get("outputs", ())) for c in notebook.cells]
    for old, new in zip(before, after, strict=True):
        assert [o["data"].get("text/markdown") for o in old] == [
            o["data"].get("text/markdown") for o in new
        ]
        assert ["image/png" in o["data"] for o in old] == ["image/png" in o["data"] for o in new]
