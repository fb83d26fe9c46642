"""What the catalogue promises, without any kernel."""

from __future__ import annotations

import ast
import builtins

import pytest

from attacks.cells import prelude
from attacks.score import host_opened, returned, verdict
from attacks.stage import Stage
from attacks.words import BOUNDARY, CATEGORIES, Attack, Report, load

CATALOGUE = load()


def an_attack(**more: object) -> Attack:
    return Attack(name="a", category="read", title="t", code="", effect=returned("x"), **more)  # type: ignore[arg-type]


def test_there_are_attacks_of_every_category() -> None:
    assert len(CATALOGUE) >= 120
    assert {a.category for a in CATALOGUE.values()} == set(CATEGORIES)


@pytest.mark.parametrize(
    "name",
    [name for name, a in CATALOGUE.items() if a.category != "browser" and a.on_host is None],
)
def test_an_attack_uses_nothing_that_the_kernel_does_not_have(name: str) -> None:
    """Its source is sent alone after the prelude: a name missing there breaks the attack."""
    module = ast.parse(CATALOGUE[name].code)
    known = set(vars(prelude)) | set(vars(builtins)) | {"get_ipython"}
    bound = {
        n.id for n in ast.walk(module) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    bound |= {a.arg for a in ast.walk(module) if isinstance(a, ast.arg)}
    bound |= {n.name for n in ast.walk(module) if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
    bound |= {n.name for n in ast.walk(module) if isinstance(n, ast.ExceptHandler) and n.name}
    for node in ast.walk(module):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            assert getattr(node, "module", "") not in ("attacks", "kernel_agent")
            bound |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    used = {
        n.id for n in ast.walk(module) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
    }
    assert used <= known | bound


@pytest.mark.parametrize(
    ("ended", "text", "seen", "expected"),
    [
        ("refused", "PermissionError", "", "stopped"),
        ("returned", "loot without a secret", "", "stopped"),
        ("dead", "", "", "contained"),
        ("timeout", "", "", "contained"),
        ("crashed", "NameError: x", "", "not run"),
        ("silent", "no report", "", "not run"),
        ("refused", "PermissionError", "a file is gone", "not stopped"),
        ("crashed", "NameError: x", "a file is gone", "not stopped"),
    ],
)
def test_what_the_host_saw_decides_and_a_broken_attack_says_nothing(
    ended: str, text: str, seen: str, expected: str
) -> None:
    assert verdict(an_attack(), Report(ended=ended, text=text), seen).verdict == expected


def test_a_secret_that_came_back_is_seen() -> None:
    with Stage() as stage:
        report = Report(ended="returned", text=f"… {stage.secrets['ssh_key']} …")
        assert "ssh_key" in returned("ssh_key")(stage, report)
        assert returned("shared_tmp")(stage, report) == ""


def test_a_changed_file_is_seen_and_put_back() -> None:
    with Stage() as stage:
        path = stage.files["bashrc"]
        path.chmod(0o600)
        assert stage.changes("bashrc") == "mode"
        stage.replant()
        path.unlink()
        assert "there" in stage.changes("bashrc")
        stage.replant()
        assert stage.changes("bashrc") == ""


def test_a_watched_file_that_somebody_opens_is_seen() -> None:
    with Stage() as stage:
        stage.watch(stage.files["bashrc"])
        assert host_opened(stage, Report(ended="returned")) == ""
        stage.files["bashrc"].read_bytes()
        assert "opened 1 times" in host_opened(stage, Report(ended="returned"))


def test_the_boundary_is_what_the_levels_claim() -> None:
    assert BOUNDARY == ("read", "write", "network", "process", "kernel-surface")
