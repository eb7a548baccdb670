import pytest
from each_row import each_row

from astra_core.errors import ConfigurationError
from flows.sweeps.space import Axis, read_axes, read_axis, read_seeds


@each_row(
    ("text", "values"),
    [
        ("training.lr=1e-4,7e-4", ("1e-4", "7e-4")),
        ("a.b = 1 , 2", ("1", "2")),
        ("a=[1, 2],[3]", ("[1, 2]", "[3]")),
        ("a={x: 1, y: [2, 3]},null", ("{x: 1, y: [2, 3]}", "null")),
        ("a='x,y',z", ("'x,y'", "z")),
        ("a=2..5", ("2", "3", "4", "5")),
        ("a=-1..1", ("-1", "0", "1")),
    ],
)
def test_values_are_split_at_commas_outside_of_brackets_and_quotes(text, values):
    axis = read_axis(text)

    assert ("choice", values) == (axis.scale, axis.values)


@each_row(
    ("text", "expected"),
    [
        ("a=0.0..0.5", Axis("a", "uniform", low=0.0, high=0.5)),
        ("a=log:1e-5..1e-3", Axis("a", "log", low=1e-5, high=1e-3)),
        ("a=log:1..8", Axis("a", "log", low=1.0, high=8.0)),
    ],
)
def test_a_range_is_one_of_numbers(text, expected):
    assert expected == read_axis(text)


@each_row(
    ("text", "words"),
    [
        ("training.lr", "must read section.key=value,value"),
        ("a=", "must read section.key=value,value"),
        (".a=1", "must read section.key=value,value"),
        ("a=1,,2", "an empty one"),
        ("a=5..2", "must go up"),
        ("a=log:0..1", "go up from above zero"),
        ("a=x..y", "must go up"),
        ("a=0..100000", "fewer than"),
        ("seed=1,2", "seeds are --seeds"),
    ],
)
def test_what_cannot_be_read_is_one_line(text, words):
    with pytest.raises(ConfigurationError, match=words):
        read_axis(text)


def test_a_key_stands_once():
    with pytest.raises(ConfigurationError, match="got a twice"):
        read_axes(["a=1", "b=2", "a=3"])


def test_seeds_are_ranges_and_numbers_each_once():
    assert (0, 1, 2, 7) == read_seeds("0..2,7,1")


@each_row("text", ["", "a", "3..1", "-1", "0..99999", "1.5"])
def test_wrong_seeds_are_one_line(text):
    with pytest.raises(ConfigurationError, match="--seeds must"):
        read_seeds(text)


def test_a_number_of_a_range_is_short():
    assert "a=0.000123457" == read_axis("a=log:1e-5..1e-3").assign(1.234567890e-4)
