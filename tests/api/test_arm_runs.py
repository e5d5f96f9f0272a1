"""The mean curve of an arm: a loop over its seeds could say the same."""

from rankbench.api.arm_runs import mean_curve


def test_a_mean_curve_has_the_iterations_and_the_columns_of_all_seeds():
    long = [{"iteration": n, "seconds": 1.0 * n, "loss": 4.0 / n, "ndcg@20": 0.1 * n} for n in (1, 2, 3)]
    short = [{"iteration": n, "seconds": 3.0 * n, "loss": 2.0 / n} for n in (1, 2)]
    assert mean_curve([long, short]) == [
        {"iteration": 1, "seconds": 2.0, "loss": 3.0}, {"iteration": 2, "seconds": 4.0, "loss": 1.5}
    ]  # fmt: skip
    assert mean_curve([long]) == long
    assert mean_curve([long, []]) == mean_curve([]) == []
