from pathlib import Path

import pytest
from each_row import each_row

from astra_core.config import Section as Published
from astra_core.errors import ConfigurationError
from astra_core.settings.sections import Choice, Count, Positive, Section


def test_a_section_is_strict_frozen_and_knows_its_keys():
    found = Choice.read({"name": "dpo", "options": {"margin": 0.5}}, where="algorithm")

    assert ("dpo", {"margin": 0.5}) == (found.name, found.options)
    with pytest.raises(ConfigurationError, match=r"algorithm\.nam is not a known key"):
        Choice.read({"nam": "dpo"}, where="algorithm")
    with pytest.raises(ConfigurationError, match=r"algorithm\.name"):
        Choice.read({"name": 3}, where="algorithm")


def test_the_configuration_publishes_it():
    assert Published is Section


class Tuned(Choice):
    grade: Count = 1


class Parent(Section):
    rate: Positive = 3e-3
    steps: tuple[Count, ...] = ()
    place: Path | None = None
    plugin: Choice = Choice(name="adamw")
    tuned: Tuned = Tuned(name="adamw")


class Child(Parent):
    rate: Positive = 1e-5


def test_a_derived_section_has_its_own_default():
    assert 1e-5 == Child().rate == Child.read({}, where="child").rate
    with pytest.raises(ConfigurationError, match=r"^Child\.rate: .* greater than 0, got -1"):
        Child(rate=-1.0)


@each_row(
    ("values", "line"),
    [
        ({"rate": True}, "Parent.rate: input should be a valid number, got True; see params.yaml"),
        ({"rat": 1.0}, "Parent.rat is not a known key; did you mean 'rate'?"),
        ({"plugin": {"options": {}}}, "Parent.plugin.name must be given; see params.yaml"),
    ],
)
def test_a_mistake_in_a_script_is_one_line(values, line):
    with pytest.raises(ConfigurationError) as caught:
        Parent(**values)

    assert line == str(caught.value)


def test_a_constructor_of_ones_own_may_set_attributes_and_no_later_code():
    class Own(Section):
        def __init__(self):
            super().__init__()
            self.place = "here"

    own = Own()

    assert "here" == own.place
    with pytest.raises(ConfigurationError, match=r"Own\.place must be declared"):
        own.place = "there"


def test_what_json_has_no_word_for_may_be_written_as_there():
    found = Parent(steps=[1, 2], place="a/b")

    assert ((1, 2), Path("a/b")) == (found.steps, found.place)


def test_a_copy_has_no_unknown_keys():
    assert 1.0 == Parent().model_copy(update={"rate": 1.0}).rate
    with pytest.raises(ConfigurationError, match=r"^Parent\.rat is not a known key; did you mean"):
        Parent().model_copy(update={"rat": 1.0})


@each_row(
    ("given", "options"),
    [
        ("ipo", {"loss": "ipo"}),
        ({"name": "ipo", "options": {"beta": 0.5}}, {"loss": "ipo", "beta": 0.5}),
        ({"name": "dpo"}, {}),
    ],
)
def test_a_choice_may_be_a_word_and_ipo_is_dpo_with_its_loss(given, options):
    assert Choice(name="dpo", options=options) == Choice.read(given, where="x")


def test_options_that_are_no_mapping_are_one_line():
    with pytest.raises(ConfigurationError, match="options: input should be an object"):
        Choice.read({"name": "ipo", "options": 3}, where="x")
