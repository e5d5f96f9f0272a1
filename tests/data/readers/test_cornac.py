"""Text files that Cornac's Reader reads, by its formats UI, UIR, UIRT, and baskets (UBI, UBIT)."""

import pytest

from rankbench.core.errors import DataError
from rankbench.data.cards import Read


@pytest.mark.parametrize(
    ("text", "read", "rows"),
    [
        ("76\t93\n76\t257\n", {}, [("76", "93"), ("76", "257")]),
        ("76\t93\t4.0\n", {}, [("76", "93", 4.0)]),
        ("76\t93\t4.0\t978300760\n", {}, [("76", "93", 4.0, 978300760)]),
        ("76,93,4.0\n", {"separator": ","}, [("76", "93", 4.0)]),
        ("76::93::4.0::978300760\n", {"separator": "::"}, [("76", "93", 4.0, 978300760)]),
        # user, basket, item, time: the columns that the card names, and no others.
        ("u1\tb1\ti1\t978300760\n", {"item": 2, "time": 3}, [("u1", "i1", 978300760)]),
        ("u1\tb1\ti1\t978300760\t{'price': 1}\n", {"item": 2}, [("u1", "i1")]),
    ],
)
def test_the_columns_tell_the_format(text, read, rows, rows_of):
    assert rows_of(text, Read(format="cornac", **read)) == rows


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "76 93 4.0\n",
            r"raw\.dat:1: expected user, item .*separated by '\\t'; found 1 column in '76 93 4\.0'; read\.separator",
        ),
        # All items of a user in a line, Cornac's other form of UI.
        ("76\t93\t94\t95\t96\n", r"raw\.dat:1: .*found 5 columns"),
        ("u1\tb1\ti1\n", r"raw\.dat:1: expected the value to be a number, found 'i1'"),
        ("76\t93\t4.0\n76\t\t4.0\n", r"raw\.dat:2: item is None"),
    ],
)
def test_another_text_is_one_line(text, message, rows_of):
    with pytest.raises(DataError, match=message):
        rows_of(text, Read(format="cornac"))
