import argparse

import pytest
from each_row import each_row

from astra_parts.arguments import LineParser, at_least_one, not_negative, whole_number


def test_a_mistake_is_one_line_with_the_way_to_the_help(capsys):
    with pytest.raises(SystemExit) as ended:
        LineParser(prog="python -m thing").parse_args(["--nonsense"])

    expected = "error: unrecognized arguments: --nonsense; see 'python -m thing --help'\n"
    assert (2, expected) == (ended.value.code, capsys.readouterr().err)


def test_numbers_are_read():
    assert (0, 7, 1, 0.5) == (
        whole_number("0"),
        whole_number("7"),
        at_least_one("1"),
        not_negative("0.5"),
    )


@each_row(
    ("read", "text"),
    [
        *((whole_number, text) for text in ("", "-1", "1.0", "x", "1_0", "٣", "9" * 5000)),
        *((at_least_one, text) for text in ("0", "-1", "x", "9" * 18)),
        *((not_negative, text) for text in ("-0.1", "nan", "inf", "x", "")),
    ],
)
def test_what_is_no_such_number_is_refused(read, text):
    with pytest.raises(argparse.ArgumentTypeError, match=r"^must be a"):
        read(text)
