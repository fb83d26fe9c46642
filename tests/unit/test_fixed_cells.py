"""Fixed cells; a kernel in this process."""

from kernel_agent import Budget, FakeKernel, Session
from kernel_agent.notebook.library import nbformat
from kernel_agent.notebook.setup_cell import Needs, make_setup
from kernel_agent.records import HostCall
from kernel_agent.records.action import Code
from kernel_agent.records.endings import ExitStatus
from kernel_agent.session.pipeline import FixedCell, read_cells


def write(path, *cells, **metadata):
    nbformat.write(nbformat.v4.new_notebook(cells=list(cells), metadata=metadata), path)
    return path


async def test_a_cell_that_may_fail_does_not_end_it(tmp_path):
    file = write(
        tmp_path / "n.ipynb",
        nbformat.v4.new_code_cell("1 / 0", metadata={"tags": ["raises-exception"]}),
        nbformat.v4.new_code_cell("final_answer(7)"),
    )
    async with Session(kernel=FakeKernel, model="offline", out=tmp_path / "o") as session:
        run = await session.play(read_cells(file), "n")
    assert run.status is ExitStatus.ANSWERED
    assert run.answer == 7


async def test_a_cell_that_is_to_be_skipped_is_not_run(tmp_path):
    file = write(
        tmp_path / "n.ipynb",
        nbformat.v4.new_code_cell("1 / 0", metadata={"tags": ["skip-execution"]}),
        nbformat.v4.new_code_cell("7"),
    )
    assert [cell.code.source for cell in read_cells(file)] == ["7"]


async def test_what_an_export_says_of_its_own_run_is_no_thought_of_the_next(tmp_path):
    file = write(
        tmp_path / "n.ipynb",
        *(
            nbformat.v4.new_markdown_cell(role, metadata={"kernel_agent": {"role": role}})
            for role in ("head", "task", "answer", "verified", "way", "thought")
        ),
        nbformat.v4.new_code_cell("1"),
        nbformat.v4.new_markdown_cell("of a person"),
        nbformat.v4.new_markdown_cell("appendix", metadata={"kernel_agent": {"role": "appendix"}}),
        nbformat.v4.new_code_cell("2"),
    )
    thoughts = [cell.code.thought for cell in read_cells(file)]
    assert thoughts == ["thought", "of a person"]


async def test_the_first_cell_of_an_export_is_a_step_only_where_it_gives_what_a_session_has_not(
    tmp_path,
):
    answer, tool = "x = 6\nfinal_answer(x)", "final_answer(price(1))"
    prices = [HostCall(name="price", arguments={"args": [1]}, ok=True, result=2)]
    for source, calls, steps in ((answer, [], 1), (tool, prices, 2)):
        setup = make_setup(Needs(sources=[source], versions={}, texts={}, calls=calls))
        first = nbformat.v4.new_code_cell(
            setup.cell, metadata={"kernel_agent": {"role": "environment"}}
        )
        file = write(tmp_path / "n.ipynb", first, nbformat.v4.new_code_cell(source))
        assert len(read_cells(file)) == steps
    edited = nbformat.v4.new_code_cell("y = 1", metadata=first.metadata)
    assert len(read_cells(write(tmp_path / "n.ipynb", edited))) == 1


async def test_there_may_be_more_cells_than_a_model_may_take_steps(tmp_path):
    cells = [FixedCell(code=Code(source=str(n))) for n in range(4)]
    async with Session(
        kernel=FakeKernel, model="offline", budget=Budget(max_steps=2), out=tmp_path / "o"
    ) as session:
        run = await session.play(cells, "four")
        few = await session.play(cells, "three", budget=Budget(max_steps=3))
    assert (run.status, len(run.steps)) == (ExitStatus.ANSWERED, 4)
    assert (few.status, len(few.steps)) == (ExitStatus.STEP_LIMIT, 3)
