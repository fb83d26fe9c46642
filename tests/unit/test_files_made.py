"""The files that a notebook plainly makes itself, and no other."""

from __future__ import annotations

import pytest

from kernel_agent.notebook.made import files_made


@pytest.mark.parametrize(
    "source",
    [
        "%%writefile a.csv\nx",
        "%%file ./a.csv\nx",
        "df.to_csv('a.csv')",
        "open('a.csv', 'w').write('x')",
        "open('a.csv', mode='xb')",
        "plt.savefig('a.csv')",
        "Path('a.csv').write_text('x')",
        "%time 1\nif big:\n    df.to_csv('a.csv')",
        "os.path.exists('a.csv'); df.to_csv('a.csv'); pd.read_csv('a.csv')",
    ],
)
def test_a_file_whose_first_use_is_that_it_is_written_is_made(source: str) -> None:
    assert files_made([source]) == {"a.csv"}


@pytest.mark.parametrize(
    "source",
    [
        "%%writefile -a a.csv\nx",
        "pd.read_csv('a.csv').to_csv('a.csv')",
        "open('a.csv')",
        "open('a.csv', 'a')",
        "if not os.path.exists('a.csv'):\n    df.to_csv('a.csv')",
        "name = 'a.csv'\ndf.to_csv(name)",
        "Path('a.csv').read_text()",
        "print('a.csv')",
        "df.to_csv('a.csv'",
    ],
)
def test_what_may_have_been_there_is_not_made(source: str) -> None:
    assert "a.csv" not in files_made([source])


def test_what_an_earlier_cell_reads_is_not_made() -> None:
    assert files_made(["pd.read_csv('a.csv')", "df.to_csv('a.csv')", "df.to_csv('b.csv')"]) == {
        "b.csv"
    }
