"""A cluster that is struck again and again: nodes and workers that die, a node that hangs for two minutes, a poisonous task.

The programs are in campaigns.py.
"""

import pytest
from programs import HERE, answer

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(850)]


def campaign(*words):
    return answer(HERE / "campaigns.py", *words, timeout=800)


@pytest.mark.fault("F1")
def test_a_node_is_killed_at_ten_drawn_moments(figure):
    seen = campaign("nodes", 10)
    assert all(fit["same"] for fit in seen["calm"] + seen["struck"]), seen
    assert len(seen["struck"]) == 10 and all(fit["in the fit"] for fit in seen["struck"]), seen
    calm = min(fit["seconds"] for fit in seen["calm"])
    extra = sorted(fit["seconds"] - calm for fit in seen["struck"])
    blocks = seen["calm"][0]["blocks"]
    assert blocks >= 64
    figure(
        f"10 of 10 nodes killed in fits of {blocks} blocks x 5 iterations: the same bits; a calm fit {calm:.1f} s, "
        f"a struck one {extra[0]:+.1f} to {extra[-1]:+.1f} s, median {(extra[4] + extra[5]) / 2:+.1f} s"
    )


@pytest.mark.fault("F2")
def test_twenty_workers_are_killed_in_one_fit(figure):
    seen = campaign("workers", 20)
    assert seen["calm"]["same"] and seen["struck"]["same"] and seen["killed"] >= 20, seen
    extra = seen["struck"]["seconds"] - seen["calm"]["seconds"]
    figure(f"20 workers killed in one fit of {seen['calm']['seconds']:.0f} s: the same bits, {extra / 20:+.2f} s for each")


@pytest.mark.fault("F3")
def test_a_node_hangs_for_two_minutes_while_fits_go_on(figure):
    seen = campaign("freeze", 120)
    assert all(fit["same"] for fit in [seen["first"], *seen["later"], *seen["thawed"]]), seen
    silence = seen["first"]["longest"] - seen["calm"]["longest"]
    assert silence < 15, seen
    fits = 1 + len(seen["later"]) + len(seen["thawed"])
    figure(f"a node frozen for 120 s, {fits} fits during and after it: the same bits; it cost the iteration {silence:.1f} s")


@pytest.mark.fault("F2")
def test_tiles_whose_workers_always_die_are_given_up(figure):
    seen = campaign("poison")
    kind, code, line, further_lines = seen["error"]
    assert (kind, code, further_lines) == ("ClusterError", 4, 0) and "tiles were lost" in line and "--resume" in line, seen
    figure(f"tiles whose workers always die: given up after {seen['seconds']:.0f} s with one line and exit 4")
