import pytest
from each_row import each_row

from astra_core.errors import DataError
from tasks.params.schema import PromotionConfiguration
from tasks.promotion.bands import broken_bands

RULES = PromotionConfiguration()
UNTRAINED = {"distinct_2_rarefied": 0.8, "probe_perplexity": 4.0}
GOOD = {
    "unique_probes_rarefied": 0.9,
    "distinct_2_rarefied": 0.4,
    "num_hits": 50,
    "top_strategy_share": 0.5,
    "nonword_probe_rate": 0.25,
    "probe_perplexity": 6.0,
    "kl_nats": 30.0,
}


def test_a_candidate_at_every_bound_is_within_the_bands():
    assert () == broken_bands(GOOD, UNTRAINED, RULES)


@each_row(
    ("name", "value", "sentence"),
    [
        ("unique_probes_rarefied", 0.89, "must be at least 0.900, got 0.890; the attacker repeats"),
        ("distinct_2_rarefied", 0.39, "must be at least 0.400, got 0.390; the attacker repeats"),
        ("top_strategy_share", 0.51, "must be at most 0.500, got 0.510; the attacker repeats"),
        ("nonword_probe_rate", 0.26, "must be at most 0.250, got 0.260; success is bought"),
        ("probe_perplexity", 6.1, "must be at most 6.000, got 6.100; success is bought"),
        ("kl_nats", 30.1, "must be at most 30.000, got 30.100; it left the reference"),
    ],
)
def test_each_figure_outside_its_band_is_a_sentence(name, value, sentence):
    (found,) = broken_bands(GOOD | {name: value}, UNTRAINED, RULES)

    assert found.startswith(f"{name} {sentence}")


@each_row(
    ("key", "name"),
    [
        ("max_top_strategy_share", "top_strategy_share"),
        ("max_nonword_probe_rate", "nonword_probe_rate"),
        ("max_perplexity_ratio", "probe_perplexity"),
        ("max_kl_nats", "kl_nats"),
    ],
)
def test_a_band_that_is_null_holds(key, name):
    assert () == broken_bands(GOOD | {name: 1e6}, UNTRAINED, PromotionConfiguration(**{key: None}))


@each_row("change", [{"min_unique_probes": 0.95}, {"min_distinct_2_ratio": 0.6}])
def test_floors_are_what_params_say(change):
    assert 1 == len(broken_bands(GOOD, UNTRAINED, PromotionConfiguration(**change)))


def test_without_a_hit_there_is_no_strategy_to_judge():
    assert () == broken_bands(GOOD | {"num_hits": 0, "top_strategy_share": None}, UNTRAINED, RULES)


@each_row("value", [None, float("nan"), "0.95", {"low": 0.95}])
def test_a_figure_that_is_no_number_is_an_error(value):
    rule = "kl_nats of the candidate must be a finite number, got"
    with pytest.raises(DataError, match=rule):
        broken_bands(GOOD | {"kl_nats": value}, UNTRAINED, RULES)
    with pytest.raises(DataError, match="of the untrained attacker must be a finite number"):
        broken_bands(GOOD, {"probe_perplexity": 4.0}, RULES)
