"""A command's options, from a record and the table of settings.

The record's fields are the command's own arguments and options. A field that is annotated
:class:`FromTable` takes the settings that the table gives the command options for, so that nobody
lists them again: a new setting appears by itself.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from inspect import Parameter, Signature
from typing import Annotated, Any, TypeAlias

import typer

from kernel_agent.cli import completion
from kernel_agent.config import SETTINGS, Setting
from kernel_agent.errors import UsageError

Settings: TypeAlias = Mapping[str, Any]
"""Settings by name, None where the user said nothing."""


@dataclass(frozen=True)
class FromTable:
    """Marks a record's field for settings: all that follow in the table, or those up to one."""

    upto: str = ""


@dataclass(frozen=True)
class _Typed:
    """One option as it is typed: its parameter, its field in the record, its setting."""

    parameter: Parameter
    field: str
    row: Setting | None = None


def command(name: str, options: type, work: Callable[[Any], int]) -> Callable[..., int]:
    """Return a function that typer reads the options from; it makes the record, and does the work.

    Parameters
    ----------
    name
        What the table calls the command.
    options
        The record.
    work
        Given the record, it returns an exit code. Its docstring is the help.
    """
    typed = list(_read_fields(name, options))

    def carry_out(**given: Any) -> int:
        values: dict[str, Any] = {}
        for each in typed:
            value = given[each.parameter.name]
            if each.row is not None:
                values.setdefault(each.field, {})[each.row.name] = _setting(each.row, value)
            elif value is not None:
                values[each.field] = tuple(value) if isinstance(value, list) else value
        return work(options(**values))

    carry_out.__doc__ = work.__doc__
    carry_out.__signature__ = Signature([each.parameter for each in typed])  # type: ignore[attr-defined]
    return carry_out


def _read_fields(name: str, options: type) -> Iterator[_Typed]:
    rows = _rows(name)
    hints = typing.get_type_hints(options, include_extras=True)
    for each in fields(options):
        _, about = typing.get_args(hints[each.name])
        if not isinstance(about, FromTable):
            yield _Typed(_own(each, hints[each.name]), each.name)
            continue
        while rows:
            row = rows.pop(0)
            yield _Typed(_of_setting(name, row), each.name, row)
            if row.name == about.upto:
                break
    assert not rows, f"{options} has no field for {rows}"


def _rows(command: str) -> list[Setting]:
    """Return the settings that a command has options for, in the order of its help."""
    rows: list[Setting] = []
    later: dict[str, Setting] = {}
    for row in SETTINGS.values():
        if row.option is None or command not in row.option.help:
            continue
        if row.option.after:
            later[row.option.after] = row
        else:
            rows.append(row)
        if row.name in later:
            rows.append(later.pop(row.name))
    return [*rows, *later.values()]


def _own(each: Field[Any], hint: Any) -> Parameter:
    default = Parameter.empty if each.default is MISSING else each.default
    kind, about = typing.get_args(hint)
    if typing.get_origin(kind) is tuple:  # as often as it is typed
        hint, default = Annotated[list[str] | None, about], None
    return _parameter(each.name, hint, default)


def _of_setting(command: str, row: Setting) -> Parameter:
    assert row.option is not None
    if row.option.repeated:
        kind: Any = list[str] | None
    else:
        kind = {bool: bool, list: str | None}.get(row.kind, row.kind | None)
    about = typer.Option(
        row.flag,
        metavar=row.option.value or None,
        help=row.option.help[command],
        autocompletion=completion.SETTINGS.get(row.name),
    )
    default = False if row.kind is bool else None
    return _parameter(row.flag[2:].replace("-", "_"), Annotated[kind, about], default)


def _parameter(name: str, annotation: Any, default: Any) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _setting(row: Setting, value: Any) -> Any:
    """Return what an option says of a setting; None when it says nothing."""
    if row.kind is bool:
        return value or None
    if row.kind is dict:
        return _read_pairs(row, value or ())
    if isinstance(value, list):
        return tuple(value) or None
    if row.kind is list and value is not None:
        return [name.strip() for name in value.split(",") if name.strip()]
    return value


def _read_pairs(row: Setting, options: typing.Iterable[str]) -> dict[str, str] | None:
    """Read NAME=WORD pairs: return the words by name.

    Raises
    ------
    UsageError
        The caller's: not of this form.
    """
    assert row.option is not None
    found = {}
    for option in options:
        name, equals, word = option.partition("=")
        if not equals or not name.strip():
            first, *more = row.option.value.partition("=")[2].split("|")
            *ways, last = (f"NAME={each}" for each in (first, *more))
            raise UsageError(f"{row.flag} {option}: write {', '.join(ways)} or {last}")
        found[name.strip()] = word.strip()
    return found or None
