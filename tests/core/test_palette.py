"""One colour per method, in reports and in MLflow."""

import re

from rankbench.core.palette import COLOURS, SHADES, colour_of_name, run_colours
from rankbench.reports.figure import styles


def test_a_method_has_the_same_colour_in_a_report_and_in_mlflow():
    arms = [f"arm {place}" for place in range(21)]
    found = run_colours([*arms, "arm 3"])
    assert list(found) == arms
    assert {arm: found[arm] for arm in arms[:7]} == {arm: style.colour for arm, style in styles(arms[:7]).items()}


def test_where_colours_are_few_their_shades_tell_methods_apart():
    found = [*run_colours(map(str, range(22))).values()]
    assert len({*found}) == 21 == len(COLOURS) * len(SHADES) and found[21] == found[0]
    assert all(re.fullmatch("#[0-9a-f]{6}", each) for each in found)
    dark, light = (sum(bytes.fromhex(found[place][1:])) for place in (7, 14))
    assert dark < sum(bytes.fromhex(found[0][1:])) < light


def test_a_run_alone_has_a_colour_by_its_name_that_no_other_run_changes():
    assert (colour_of_name("bpr"), colour_of_name("sl")) == ("#bbb1ec", "#5a5187")
