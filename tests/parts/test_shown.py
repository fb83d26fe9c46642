"""Nothing is hidden from the model without a word, whatever a cell puts out."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.shown import losses, make_outputs


@pytest.mark.long
@settings(max_examples=examples(500), deadline=None)
@given(random=st.integers(0, 2**32).map(Random), max_chars=st.sampled_from([1000, 3000, 8000]))
def test_what_is_not_shown_is_counted_and_can_be_had(random: Random, max_chars: int) -> None:
    """Rows, columns, long cells, items, characters and whole outputs."""
    assert losses(make_outputs(random), max_chars=max_chars) == []
