"""How many examples a test tries that says so itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from hypothesis import settings

T = TypeVar("T")


def examples(many: int, *, least: int = 10) -> int:
    """Return so many, or a fifth of it with ``--hypothesis-profile quick``, but not too few."""
    return max(many // 5, least) if is_quick() else many


def thinned(items: Sequence[T]) -> Sequence[T]:
    """Return them, or each fifth of them with ``--hypothesis-profile quick``."""
    return items[::5] if is_quick() else items


def is_quick() -> bool:
    return settings.get_current_profile_name() == "quick"
