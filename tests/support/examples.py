"""How many examples a test tries that says so itself."""

from __future__ import annotations

from hypothesis import settings


def examples(many: int, *, least: int = 10) -> int:
    """Return so many, or a fifth of it with ``--hypothesis-profile quick``, but not too few."""
    quick = settings.get_current_profile_name() == "quick"
    return max(many // 5, least) if quick else many
