"""Text files of Elliot and of Cornac's Reader, by its formats UI, UIR, UIRT, and baskets (UBI, UBIT)."""

import pytest

from rankbench.core.errors import DataError
from rankbench.data.cards import Read


@pytest.mark.parametrize(
    ("text", "read", "rows"),
    [
        ("76\t93\n76\t257\n", {}, [("76", "93"), ("76", "257")]),
        ("76\t93\t4.0\n", {}, [("76", "93", 4.0)]),
        ("76\t93\t4.0\t978300760\n", {}, [("76", "93", 4.0, 978300760)]),
        ("", {}, []),
        # pandas writes times as floats if some are missing.
        ("1\t2\t3.0\t978300760.0\n1\t3\t3.0\t\n", {}, [("1", "2", 3.0, 978300760), ("1", "3", 3.0, None)]),
        ("76,93,4.0\n", {"separator": ","}, [("76", "93", 4.0)]),
        ("76::93::4.0::978300760\n", {"separator": "::"}, [("76", "93", 4.0, 978300760)]),
        # user, basket, item, time: the columns that the card names, and no others.
        ("u1\tb1\ti1\t978300760\n", {"item": 2, "time": 3}, [("u1", "i1", 978300760)]),
        ("u1\tb1\ti1\t978300760\t{'price': 1}\n", {"item": 2}, [("u1", "i1")]),
    ],
)
@pytest.mark.parametrize("format", ["cornac", "elliot"])
def test_the_columns_tell_the_format(format, text, read, rows, rows_of):
    assert rows_of(text, Read(format=format, **read)) == rows


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
        ("76\t93\t4.0\n76\t93\n", r"raw\.dat:2: Expected 3 columns, got 2"),
        ("76\t93\t4.0\n76\t\t4.0\n", r"raw\.dat:2: item is None"),
    ],
)
@pytest.mark.parametrize("format", ["cornac", "elliot"])
def test_another_text_is_one_line(format, text, message, rows_of):
    with pytest.raises(DataError, match=message):
        rows_of(text, Read(format=format))
