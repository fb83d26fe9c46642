"""What is recorded does not depend on which versions of others' packages are installed."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from itertools import cycle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldens.record import RECORDED, record
from goldens.test_goldens import files, same
from goldens.versions import canonical, without_versions

OTHER = ("10.12.0rc1.post3", "6", "2026.11.24.dev20261124+g1a2b3c", "0.0.1", "6.0.10")
READ = {"nbformat": "10.12.0"}  # it reads its own version, and wants three numbers
NOT_HERE = (  # so many that a list of all is cut
    "scipy", "scikit-learn", "scikit-image", "statsmodels", "opencv-python", "networkx", "sympy",
    "plotly", "polars", "duckdb", "numba", "torch", "xgboost",
)  # fmt: skip
OTHER_PYTHON = '''"""Makes this Python say that it is another."""
import platform
platform.python_version = lambda: "3.14.10rc2"
'''
TEXT = "\n\n".join((
    "pandas {pandas}", '"pandas": "{pandas}",', r"\"pandas\": \"{pandas}\"", "'pandas': '{pandas}'",
    'dependencies = ["pandas=={pandas}", "PyYAML=={pyyaml}"]', "pandas>={pandas}",
    r'"# dependencies = [\"pandas=={pandas}\"]\n",', r'"first line\npandas {pandas}\nnext"',
    "<li>pandas {pandas}</li>", "<td>pandas</td>\n<td>{pandas}</td>", "<b>PyYAML</b>&nbsp;{pyyaml}",
    "ok   pandas    {pandas} (reads tables)", "Python {python}", "python={python}",
    "It is pandas {pandas}.", "pandas ({pandas}), pyyaml {pyyaml}", "kernel_agent {x}",
    '"language_info": {{"name": "python", "version": "{python}"}}', "pandas\n    {pandas} and",
    "python {python}, kernel-agent {x}, pandas {pandas}, PyYAML {pyyaml}",
))  # fmt: skip
NUMBERS = st.lists(st.integers(0, 2030).map(str), min_size=1, max_size=4).map(".".join)
VERSIONS = st.tuples(NUMBERS, st.sampled_from(["", "rc1", ".post3", ".dev1+g1a2", "a1.post2"])).map(
    "".join
)


def pretend(folder: Path) -> Path:
    """Write other versions of all that is installed, and some that is not, into a folder."""
    versions = cycle(OTHER)
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"]
        copied = folder / f"{canonical(name).replace('-', '_')}-other.dist-info"
        copied.mkdir(parents=True, exist_ok=True)
        version = READ.get(name, next(versions))
        (copied / "METADATA").write_text(_head(name, version))
        if points := distribution.read_text("entry_points.txt"):
            (copied / "entry_points.txt").write_text(points)
    for name in NOT_HERE:
        added = folder / f"{name.replace('-', '_')}-other.dist-info"
        added.mkdir()
        (added / "METADATA").write_text(_head(name, next(versions)))
    (folder / "sitecustomize.py").write_text(OTHER_PYTHON)
    return folder


def _head(name: str, version: str) -> str:
    return f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"


@pytest.mark.parametrize(
    "sessions",
    [
        ("fenced",),
        # The others are told by what differs from the first.
        pytest.param(("fenced", "tables", "pictures", "interpreter"), marks=pytest.mark.long),
    ],
)
def test_other_versions_of_everything_record_the_same(
    sessions: tuple[str, ...], tmp_path: Path
) -> None:
    """The product reads them from the installation, as always, and writes them where it does."""
    record(f"sessions:{','.join(sessions)}", tmp_path / "now", pretend(tmp_path / "other"))
    recorded = files(RECORDED / "sessions")
    before = {name: recorded[name] for name in (f"{session}.txt" for session in sessions)}
    same(before, files(tmp_path / "now" / "sessions"))


@given(one=st.tuples(*[VERSIONS] * 4), other=st.tuples(*[VERSIONS] * 4))
def test_a_version_of_any_form_leaves_the_same_text(
    one: tuple[str, ...], other: tuple[str, ...]
) -> None:
    assert _shown(one) == _shown(other)


def _shown(versions: tuple[str, ...]) -> str:
    known = dict(zip(("python", "pandas", "pyyaml", "kernel-agent"), versions, strict=True))
    return without_versions(TEXT.format(**known, x=known["kernel-agent"]), known)


KNOWN: Mapping[str, str] = {"python": "3.11.7", "pandas": "3.1.1", "rich": "15", "six": "1.17.0"}


@pytest.mark.parametrize(
    "text",
    ["3.1.1", "six of 3.1.1", "pandas 3.1", "pandas 3.1.10", "rich 15.5", "rich 1", "region 3.11",
     "pandas: 2 of 3", '"version": "3.1.1"', "numpandas 3.1.1", "mean 3.1.1 pandas", "3.11.7 USD",
     "total 1.17.0", "x = 3.11"],
)  # fmt: skip
def test_a_figure_that_is_no_version_stays(text: str) -> None:
    assert without_versions(text, KNOWN) == text


def test_a_list_of_what_is_installed_keeps_what_every_recording_has() -> None:
    listed = "- python 3.11.7, pandas 3.1.1, torch 2.0, numpy 2.4.6, tqdm 4.7…</li>"
    assert without_versions(listed, KNOWN) == (
        "- python <version>, pandas <version>, numpy <version></li>"
    )
    mapped = (
        '{"versions": {\n  "Jinja2": "3",\n  "numpy": "2",\n  "python": "3",\n  "tqdm": "4"\n }}'
    )
    kept = without_versions(mapped, {"python": "3", "numpy": "2"})
    assert kept == '{"versions": {\n  "numpy": "<version>",\n  "python": "<version>"\n }}'
