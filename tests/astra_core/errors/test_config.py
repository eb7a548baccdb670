import pytest
from each_row import each_row
from pydantic import Field

from astra_core.config import Section
from astra_core.errors import ConfigurationError


class Inner(Section):
    depth: int = 1


class Mixed(Section):
    arguments: dict[str, float | int | str] = Field(default_factory=dict)
    inner: Inner | None = None
    number: int = 0


def line(record):
    with pytest.raises(ConfigurationError) as refusal:
        Mixed.read(record, where="area")
    return str(refusal.value)


def test_a_value_of_several_types_is_one_line_at_its_key():
    assert (
        "area.arguments.power: input should be a valid number or a valid integer or a valid "
        "string, got [1]; see 'astra params area.arguments.power'"
    ) == line({"arguments": {"power": [1]}})


def test_an_optional_section_is_named_by_its_key_alone():
    assert line({"inner": {"depth": "x"}}).startswith("area.inner.depth: input should be a valid")


def test_a_long_value_is_cut_and_its_key_and_rule_stay():
    message = line({"number": "x" * 9000})

    assert message.startswith("area.number: input should be a valid integer, got 'xxx")
    assert message.endswith("xxx'; see 'astra params area.number'")
    assert 200 > len(message)


def test_a_key_that_breaks_lines_breaks_none():
    assert "\n" not in line({"a\nb": 1})


@each_row(("base", "digits"), [(10, 19), (-10, 19), (10, 5000), (16, 5000)])
def test_a_number_beyond_64_bits_is_named_by_its_key(base, digits):
    with pytest.raises(ConfigurationError, match=r"^area\.list\.1 must be a number of at most 18"):
        Mixed.read({"list": [1, base**digits]}, where="area")


def test_of_very_many_problems_some_are_reported_and_the_rest_counted():
    lines = line({f"key{number}": 1 for number in range(99)}).splitlines()

    assert 20 == len(lines)
    assert "and 80 more; see params.yaml" == lines[-1]


def test_half_a_character_is_reported_in_words():
    assert "must hold whole characters" in line({"arguments": {"power": "\ud83d"}})
