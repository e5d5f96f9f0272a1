"""The texts that errors are made of."""

import pytest

from rankbench.core.errors import first_line


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("one\ntwo"), "one"),
        (ValueError("\n  one\ntwo"), "one"),
        (EOFError(), "EOFError"),
        (ValueError(" \n"), "ValueError"),
    ],
)
def test_the_first_line_of_an_error_is_its_message_or_its_type(error, line):
    assert first_line(error) == line
