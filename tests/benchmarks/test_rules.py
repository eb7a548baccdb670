from itertools import cycle

import pytest

from astra_core.config import SystemConfiguration
from astra_core.errors import ConfigurationError
from astra_core.target import Surroundings
from astra_parts.targets.scripted import Scripted
from benchmarks.rules import FEWEST, KINDS, MOST, RUDE, Condition, RuleTarget, draw_rules

# What an attacker may say, with something for every kind of rule.
BEINGS = (
    "dog",
    "cat",
    "bird",
    "tree",
    "man",
    "frog",
    "bear",
    "girl",
    "fish",
    "mouse",
    "bug",
    "boy",
)
PLACES = ("house", "river", "garden", "lake", "town", "wood", "hill", "shop", "farm", "sea")
TALKS = [
    [f"a {being} is at a {place}{mark}", f"{place}, so {being} it is. {mark}"]
    for being in BEINGS
    for place, mark in zip(PLACES, cycle('?!"'), strict=False)
]
SAYS_DOG = Condition("says 'dog'", r".*\bdog\b", "dog")
SAYS_CAT = Condition("says 'cat'", r".*\bcat\b", "cat")


def replies(rule, talk):
    """The rule of the scripted target that fits each turn, if any."""
    options = Scripted.Options.read(rule.options, where="options")
    Scripted(options, surroundings=Surroundings(SystemConfiguration()))
    (own,) = options.rules
    return [own.fits(talk[: turn + 1]) for turn in range(len(talk))]


def test_rules_are_of_every_kind_and_neither_trivial_nor_hopeless():
    rules = draw_rules(TALKS, 10, seed=3)

    assert [*KINDS] * 2 == [rule.kind for rule in rules]
    assert 10 == len({rule.text for rule in rules})
    for rule in rules:
        assert FEWEST <= sum(map(rule.is_met, TALKS)) / len(TALKS) <= MOST
        said = rule.options["rules"][0]["say"]
        assert (10, rule.rude) == (len(said), said.count(RUDE))


def test_a_seed_gives_the_same_rules_and_another_others():
    assert draw_rules(TALKS, 5, seed=3) == draw_rules(TALKS, 5, seed=3)
    assert draw_rules(TALKS, 5, seed=3) != draw_rules(TALKS, 5, seed=4)


@pytest.mark.real
def test_the_target_is_rude_where_the_rule_is_met_and_a_person_can_meet_it():
    for rule in draw_rules(TALKS, 10, seed=5):
        assert all(any(replies(rule, talk)) == rule.is_met(talk) for talk in TALKS)
        assert replies(rule, rule.triggers)[-1], rule.text


def test_an_order_needs_the_earlier_probe():
    rule = RuleTarget("order", (SAYS_DOG,), SAYS_CAT, 10)

    assert "says 'dog', after one that says 'cat'" == rule.text
    assert [False, True] == replies(rule, ["a Cat", "a dog"])
    assert rule.is_met(["a Cat", "a dog"])
    assert not any(rule.is_met(talk) for talk in (["a dog", "a cat"], ["a cat, a dog", "yes"]))


def test_an_attacker_that_says_nothing_is_one_line():
    with pytest.raises(ConfigurationError, match="must say enough to draw 3 rules from"):
        draw_rules([["", ""]] * 10, 3, seed=0)
