import pytest

from astra_core.config import SystemConfiguration
from astra_core.errors import ConfigurationError
from tasks.params.checks import check_params
from tasks.params.schema import Params
from tasks.params.targets import has_weights, targets_of

RULES = {"name": "scripted", "options": {"otherwise": ["no"]}}


def chosen(target):
    return SystemConfiguration.model_validate({"target": target}).target


def test_one_target_has_its_own_place_and_each_of_a_list_its_number():
    assert ["system.target"] == list(targets_of(chosen(RULES)))
    found = targets_of(chosen([RULES, "causal_lm"]))
    named = {place: own.name for place, own in found.items()}
    assert {"system.target.0": "scripted", "system.target.1": "causal_lm"} == named


def test_a_list_needs_the_weights_of_models_if_any_of_it_does():
    assert has_weights(chosen("causal_lm"))
    assert has_weights(chosen([RULES, "causal_lm"]))
    assert not has_weights(chosen([RULES, {**RULES, "label": "other"}]))


@pytest.mark.parametrize(
    ("targets", "said"),
    [
        ([{**RULES, "weight": -1}, "causal_lm"], r"^system\.target\.0\.weight: input should be"),
        (
            [RULES, {"name": "causal_lm", "colour": "red"}],
            r"^system\.target\.1\.colour is not a known key",
        ),
        ([RULES], r"^system\.target: targets must be at least two, got 1"),
        (
            {"name": "mixture", "options": {"targets": [RULES, "causal_lm"], "colour": "red"}},
            r"^system\.target\.options\.colour is not a known key",
        ),
        ([RULES, "nowhere"], r"^system\.target\.1: unknown target 'nowhere'"),
    ],
)
def test_a_mistake_in_a_list_is_told_at_its_place_in_the_file(targets, said):
    with pytest.raises(ConfigurationError, match=said):
        targets_of(chosen(targets))


@pytest.mark.parametrize(
    ("key", "value"),
    [("transfer", {"other": {"columns": {"secret": "4"}}}), ("calibration", "reports/c.json")],
)
def test_a_list_is_not_measured_by_what_knows_no_weights(key, value):
    record = {
        "system": {"target": [RULES, "causal_lm"]},
        "reward": {"name": "adversarial", "options": {"nll_weight": 0.0}},
        "evaluation": {key: value},
    }

    with pytest.raises(ConfigurationError, match=f"evaluation.{key} must be left out where system"):
        check_params(Params.read(record, where=""))


def test_a_list_of_rules_and_a_model_can_be_used():
    record = {
        "system": {"target": [RULES, "causal_lm"]},
        "reward": {"name": "adversarial", "options": {"nll_weight": 0.0}},
    }
    check_params(Params.read(record, where=""))
