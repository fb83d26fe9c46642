"""What a run asked of the network, with what its agents asked."""

from __future__ import annotations

from kernel_agent.records import Visit
from kernel_agent.session.kernels import added_up


def test_visits_of_one_destination_are_one_and_refused_ones_stay_apart():
    visits = [
        Visit(host="a.example", port=443, allowed=True, requests=1, sent=2, received=3),
        Visit(host="b.example", port=443, allowed=True, requests=2),
        Visit(host="a.example", port=443, allowed=False, requests=9, reason="not named"),
        Visit(host="a.example", port=443, allowed=True, requests=4, sent=5, received=6),
    ]
    assert added_up(visits) == (
        Visit(host="a.example", port=443, allowed=False, requests=9, reason="not named"),
        Visit(host="a.example", port=443, allowed=True, requests=5, sent=7, received=9),
        Visit(host="b.example", port=443, allowed=True, requests=2),
    )
