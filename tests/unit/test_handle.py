"""The handle of a run that goes on in a notebook."""

from concurrent.futures import Future
from queue import SimpleQueue

from kernel_agent_extension.handle import Handle


def test_stopping_a_run_that_has_ended_stops_no_other():
    """Its session may be at the next question."""
    stopped = []
    future = Future()
    handle = Handle(
        "How many?",
        future,
        events=SimpleQueue(),
        stop=lambda: stopped.append("run"),
        show=print,
        finish=print,
    )
    handle.stop()
    future.set_result(None)
    handle.stop()
    assert stopped == ["run"]
