"""No exception's text shows an attack, and each still says enough to find the mistake."""

import bad_plugins as bad
import pytest
from each_row import each_row

from astra_core.errors import ConfigurationError, DataError, exception_text
from astra_core.errors.exception_text import (
    LINE_LIMIT,
    error_line,
    excerpt,
    is_ours,
    masked_trace,
    place_in_plugin,
    shorten,
    shown_text,
    suggestion,
)
from astra_core.files import flush_to_disk, read_json
from astra_core.registry import resolve


@pytest.fixture(autouse=True)
def _no_plugin_is_known(monkeypatch):
    """Other tests of this process name modules of the standard library as plug-ins."""
    monkeypatch.setattr(exception_text, "_named", set())


def caught(act):
    try:
        act()
    except BaseException as error:  # noqa: BLE001 - whatever it is
        return error
    message = "nothing was raised"
    raise AssertionError(message)


def throw(error):
    raise error


@each_row("name", bad.RAISED)
def test_nothing_that_is_raised_elsewhere_shows_what_it_quotes(name):
    error = caught(lambda: throw(bad.RAISED[name]()))
    told = error_line(error) + masked_trace(error)

    assert type(error).__name__ in told
    assert "test_exception_text.py" in place_in_plugin(error)
    assert not [word for word in bad.SPOKEN if word in told]


def test_a_text_of_ours_is_shown():
    error = caught(lambda: resolve("scorer", "profane"))

    assert is_ours(error)
    assert str(error) == shown_text(error)
    assert "must be given" == shown_text(ConfigurationError("must be given"))


def test_of_a_long_text_a_few_lines_are_shown():
    for error in (OSError("x" * 90_000), DataError("a b\n" * 30_000), ValueError("w" * 90_000)):
        told = shown_text(caught(lambda error=error: throw(error)))

        assert len(told) < 5_000


def test_no_address_shows_what_logs_in():
    address = "https://me:sk-hidden@host/v1?key=sk-hidden"
    for kind in (OSError, ConfigurationError, RuntimeError):
        assert "hidden" not in error_line(kind(f"no answer from '{address}' within 3 s"))
    assert "got 'https://***@host/v1?***' 3" == str(ConfigurationError(f"got '{address}' 3"))


def test_an_error_of_our_class_that_others_raise_is_masked():
    error = caught(lambda: throw(DataError("no rows in you stupid idiot")))

    assert not is_ours(error)
    assert "n· r··· i· y·· s····· i····" == shown_text(error)


@each_row(
    ("act", "expected"),
    [
        (lambda: __import__("no_such_module"), "No module named 'no_such_module'"),
        (lambda: exec("import math\nmath.nothing"), "'module' has no attribute 'nothing'"),  # noqa: S102
        (lambda: exec("nothing"), "name 'nothing' is not defined"),  # noqa: S102
        (lambda: compile("x = (", "mine.py", "exec"), "'(' was never closed (mine.py, line 1)"),
        (lambda: open("/no/such/file"), "No such file or directory"),  # noqa: SIM115, PTH123
    ],
)
def test_what_python_itself_says_is_shown(act, expected):
    assert expected == shown_text(caught(act))


def test_a_library_that_quotes_a_value_is_masked_also_where_we_call_it(tmp_path):
    (tmp_path / "torn.json").write_text('{"you stupid idiot"', encoding="utf-8")
    error = caught(lambda: read_json(tmp_path / "torn.json"))
    # As if a stage had called it: the frame of this test is none of a plug-in.
    error.__traceback__ = error.__traceback__.tb_next.tb_next

    assert "" == place_in_plugin(error)
    assert shown_text(error).startswith("E········ ':' d········")


def test_what_goes_wrong_in_code_of_ours_and_quotes_nothing_is_shown(tmp_path):
    error = caught(lambda: flush_to_disk(tmp_path / "none"))
    error.__traceback__ = error.__traceback__.tb_next.tb_next

    assert f"FileNotFoundError: {error}" == error_line(error)
    assert "none" in error_line(error)


def test_a_trace_tells_causes_notes_and_groups_without_their_texts():
    def act():
        try:
            throw(ValueError(bad.ATTACK))
        except ValueError as error:
            later = RuntimeError(bad.ATTACK)
            later.add_note(bad.ATTACK)
            raise ExceptionGroup(bad.ATTACK, [later]) from error

    trace = masked_trace(caught(act))

    assert ["ValueError: ", "ExceptionGroup: ", "RuntimeError: "] == [
        name for name in ("ValueError: ", "ExceptionGroup: ", "RuntimeError: ") if name in trace
    ]
    assert "This led to:" in trace
    assert not [word for word in bad.SPOKEN if word in trace]


def test_an_exception_that_cannot_even_be_read_is_reported():
    class Unreadable(Exception):  # noqa: N818 - the name says it
        def __str__(self):
            raise ValueError(bad.ATTACK)

    assert "Unreadable: no text, as ValueError was raised for it" == error_line(
        caught(lambda: throw(Unreadable()))
    )


def test_a_circle_of_causes_ends():
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first

    assert 2 == masked_trace(first).count("ValueError")


@each_row("value", ["x", 3, -1.5, None, True, [1, 2], {"a": 1}])
def test_a_short_value_is_as_python_writes_it(value):
    assert repr(value) == excerpt(value)


LONG = ("x" * 9000, 10**200, 10**9000, [[1] * 99] * 99, {1: "y" * 999})


# Not by the values themselves: pytest would write the largest number into a name.
@each_row("place", range(len(LONG)))
def test_a_long_value_keeps_to_its_limit(place):
    assert 80 >= len(excerpt(LONG[place]))


def test_a_line_break_in_a_value_breaks_no_line():
    assert "\n" not in excerpt("a\nb")
    assert "a b" == shorten("a\n  b\n")


def test_of_a_long_line_the_beginning_and_the_end_stay():
    line = shorten(f"subject must {'x' * 900}; way out")

    assert LINE_LIMIT == len(line)
    assert line.startswith("subject must ")
    assert line.endswith("; way out")


@each_row(
    ("name", "hint"),
    [
        ("AdamW", "; did you mean 'adamw'?"),
        ("DPO", "; did you mean 'dpo'?"),
        ("bias", "; did you mean 'Bias'?"),
        ("nothing", "; see there"),
    ],
)
def test_the_nearest_name_is_suggested_whatever_its_capitals(name, hint):
    known = ["adam", "adamw", "dpo", "Bias"]
    assert hint == suggestion(name, known, otherwise="see there")
    assert "" == suggestion("nothing", known)
