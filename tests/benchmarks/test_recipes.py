from functools import cache
from pathlib import Path

import pytest
from each_row import each_row

from astra_core.registry import find
from benchmarks.recipes import DEFAULT, RECIPES
from flows.settings import planned_params

PARAMS = Path(__file__).resolve().parents[2] / "params.yaml"


@cache
def planned(name):
    """What params.yaml would say by a recipe, as text and read."""
    recipe = RECIPES[name]
    return planned_params(recipe.changes, PARAMS, preset=recipe.preset)


@pytest.mark.wide
def test_each_recipe_is_usable_and_another():
    found = {name: planned(name)[0] for name in RECIPES}

    assert found[DEFAULT] == planned_params((), PARAMS)[0]
    assert len(RECIPES) == len({*found.values()})


@pytest.mark.real
@each_row(
    ("name", "number", "has_penalty", "floor"),
    [
        ("untuned", 8, False, "relative"),
        ("three_replies", 3, False, "relative"),
        ("rude_costs", 8, True, "relative"),
        ("absolute_floor", 8, False, "absolute"),
    ],
)
def test_a_recipe_takes_one_part_back(name, number, has_penalty, floor):
    _, params = planned(name)
    terms = params.reward.options["terms"]

    assert number == params.rollouts.sampler.options["num_responses"]
    assert has_penalty == ("probe_score" in terms)
    assert floor == terms["likelihood"]["options"]["floor"]


def test_one_recipe_and_those_of_the_preset_have_published_options():
    found = {name: planned(name)[1] for name in RECIPES}

    assert {"published"} | {
        name for name, recipe in RECIPES.items() if recipe.preset == "untuned"
    } == {name for name, own in found.items() if own.training.algorithm.defaults == "published"}


def test_a_recipe_pays_for_rare_successes():
    _, params = planned("diverse")

    assert params.reward.options["diversity_weight"] > 0.0


@each_row(
    ("name", "left_out"),
    [
        ("no_rudeness_penalty", {"probe_penalty"}),
        ("no_likelihood", {"nll_weight"}),
        ("no_novelty", {"novelty_weight"}),
        ("replies_alone", {"probe_penalty", "nll_weight", "novelty_weight"}),
    ],
)
def test_a_recipe_leaves_terms_of_the_default_reward_out(name, left_out):
    (_, default), (_, params) = planned(DEFAULT), planned(name)
    before, found = (find("reward", own.reward).options.model_dump() for own in (default, params))

    assert left_out == {key for key, value in found.items() if value != before[key]}
    assert {0.0} == {found[key] for key in left_out}
