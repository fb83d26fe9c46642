"""``outputs[k]`` gives back what was printed, to the character, without keeping it in memory."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples

from kernel_agent.inkernel.outputs import BUFFER, Memory
from kernel_agent.inkernel.stream import TAIL, Cut


@settings(max_examples=examples(50))
@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.one_of(st.text(), st.just("x" * (BUFFER // 2)))),
        max_size=12,
    )
)
def test_every_step_gives_back_its_own_text(pieces: list[tuple[int, str]]) -> None:
    memory = Memory()
    expected: dict[int, str] = {}
    for number, (_, text) in enumerate(pieces, start=1):
        memory.begin(number)
        memory.append(text)
        memory.append("!")
        expected[number] = text + "!"
    assert {k: memory[k] for k in memory} == {
        k: v.encode("utf-8", "replace").decode() for k, v in expected.items()
    }


def test_what_goes_beyond_the_cap_is_counted() -> None:
    memory = Memory(cell_cap=10)
    memory.begin(1)
    memory.append("123456789012345")
    memory.append("more")
    assert memory[1].startswith("1234567890\n")
    assert "9 more characters" in memory[1]
    assert not memory.is_whole(1)


def test_a_step_that_is_not_there_says_which_are() -> None:
    memory = Memory()
    with pytest.raises(KeyError, match="no step yet"):
        memory[1]
    memory.begin(3)
    memory.begin(4)
    memory.begin(6)
    with pytest.raises(KeyError, match=r"outputs\[5\]: this kernel has run steps 3 to 4, 6 \("):
        memory[5]


def test_threads_that_print_at_once_lose_nothing() -> None:
    memory = Memory()
    memory.begin(1)

    def print_much(mark: str) -> None:
        for _ in range(2000):
            memory.append(mark * 50)

    threads = [threading.Thread(target=print_much, args=(c,)) for c in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(memory[1]) == sorted("abcd" * 50 * 2000)


@given(st.lists(st.integers(0, 3 * TAIL), min_size=1, max_size=6))
def test_the_end_of_a_flood_is_kept_and_the_rest_counted(sizes: list[int]) -> None:
    cut, everything = Cut(), ""
    for number, size in enumerate(sizes):
        text = str(number) * size
        everything += text
        cut.hold(text)
    ending = cut.ending(7, whole=True)
    tail = everything[-TAIL:]
    assert ending.endswith(tail)
    assert f"{len(everything) - len(tail):,} characters left out; outputs[7] holds all" in ending
