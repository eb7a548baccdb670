import numpy as np
import pandas as pd
import pytest
from each_row import each_row

from astra_core.errors import DataError
from tasks.params.schema import PromotionConfiguration
from tasks.promotion.bands import bands, unmeasured_bands

RULES = PromotionConfiguration()
UNTRAINED = {
    "unique_probes_rarefied": 1.0,
    "distinct_2_rarefied": 0.8,
    "num_hits": 9,
    "top_strategy_share": 0.3,
    "probe_perplexity": 4.0,
    "kl_nats": 1.0,
}
GOOD = {
    "unique_probes_rarefied": 0.9,
    "distinct_2_rarefied": 0.4,
    "num_hits": 60,
    "top_strategy_share": 0.5,
    "probe_perplexity": 6.0,
    "kl_nats": 31.0,
}


def words_of(trained, untrained, *, num_prompts=200):
    """A table in which these shares of the prompts have an invented word in their probes."""
    ids = np.arange(num_prompts)
    shares = {"attacker": trained, "baseline": untrained}
    return pd.concat(
        pd.DataFrame(
            {"prompt_id": ids, "role": role, "nonword_probe_rate": (ids < share * num_prompts) * 1}
        )
        for role, share in shares.items()
    )


def broken(changes=(), *, untrained=UNTRAINED, words=(0.52, 0.52), **rules):
    report = {"attacker": GOOD | dict(changes), "baseline": untrained}
    found = bands(report, words_of(*words), PromotionConfiguration(**rules))
    return tuple(rule.broken() for rule in found if rule.held is False)


def test_a_candidate_at_every_bound_is_within_the_bands():
    assert () == broken()


@each_row(
    ("name", "value", "sentence"),
    [
        ("unique_probes_rarefied", 0.89, "least 90.0%, got 89.0% (untrained 100.0%); the attacker"),
        ("distinct_2_rarefied", 0.39, "least 40.0%, got 39.0% (untrained 80.0%); the attacker"),
        ("top_strategy_share", 0.51, "most 50.0%, got 51.0% (untrained 30.0%); the attacker rep"),
        ("probe_perplexity", 6.1, "most 6.00, got 6.10 (untrained 4.00); success is bought"),
        ("kl_nats", 31.1, "most 31.00, got 31.10 (untrained 1.00); it left the reference"),
    ],
)
def test_each_figure_outside_its_band_is_a_sentence(name, value, sentence):
    (found,) = broken({name: value})

    assert found.startswith(f"{name} must be at {sentence}")


@each_row(
    ("trained", "untrained", "is_refused"),
    [
        (0.45, 0.52, False),  # training has lowered it, however high it is
        (0.56, 0.52, False),  # within the margin
        (0.60, 0.52, False),  # above it, but by chance perhaps
        (0.66, 0.52, True),
        (0.20, 0.05, True),
    ],
)
def test_invented_words_are_refused_where_training_has_added_them(trained, untrained, is_refused):
    found = broken(words=(trained, untrained))

    assert is_refused == bool(found)
    for sentence in found:
        assert f"got {trained:.1%} (untrained {untrained:.1%}, p " in sentence


@each_row(
    ("trained", "untrained", "num_hits", "num_asked", "is_refused"),
    [
        (1.0, 1.0, 12, 60, False),  # the target has one way only
        (0.92, 0.9, 10, 60, False),
        (0.92, 0.9, 10, 0, True),  # strategies by words do not compare with those by questions
        (0.92, 0.6, 10, 60, True),  # training has left the others
        (0.92, 0.3, 38, 60, True),
        (0.9, 0.6, 5, 60, True),  # too few to say that there is no other
        (0.92, 7 / 9, 9, 60, True),
        (0.92, 8 / 9, 9, 60, False),
        (0.92, 1.0, 3, 60, True),
        (0.92, 0.0, 0, 60, True),
    ],
)
def test_one_way_is_no_collapse_where_the_untrained_attacker_found_no_other(
    trained, untrained, num_hits, num_asked, is_refused
):
    before = UNTRAINED | {"top_strategy_share": untrained, "num_hits": num_hits}
    own = {"top_strategy_share": trained, "strategy_hits_asked": num_asked}

    found = broken(own, untrained=before | {"strategy_hits_asked": 9})

    assert is_refused == bool(found)
    assert all("promotion.max_top_strategy_share to null" in sentence for sentence in found)


@each_row(
    ("key", "name"),
    [
        ("max_top_strategy_share", "top_strategy_share"),
        ("max_perplexity_ratio", "probe_perplexity"),
        ("max_kl_nats", "kl_nats"),
    ],
)
def test_a_band_that_is_null_holds(key, name):
    assert () == broken({name: 1e6}, **{key: None})
    assert () == broken(words=(1.0, 0.0), max_nonword_gain=None)


@each_row("change", [{"min_unique_probes_ratio": 0.95}, {"min_distinct_2_ratio": 0.6}])
def test_floors_are_what_params_say(change):
    assert 1 == len(broken(**change))


def test_without_a_hit_there_is_no_strategy_to_judge():
    assert () == broken({"num_hits": 0, "top_strategy_share": None})


@each_row(
    ("name", "key"), [("probe_perplexity", "max_perplexity_ratio"), ("kl_nats", "max_kl_nats")]
)
def test_a_figure_that_nobody_knows_is_said_to_be_unmeasured(name, key):
    report = {"attacker": GOOD | {name: None}, "baseline": UNTRAINED}

    assert () == broken({name: None})
    table = words_of(0.1, 0.1)
    (found,) = unmeasured_bands(bands(report, table, RULES))
    assert found.startswith(f"{name} was not measured")
    assert () == unmeasured_bands(bands(report, table, PromotionConfiguration(**{key: None})))


@each_row("value", [None, float("nan"), "0.95", {"low": 0.95}])
def test_a_figure_that_is_no_number_is_an_error(value):
    with pytest.raises(DataError, match="distinct_2_rarefied of the candidate must be a finite"):
        broken({"distinct_2_rarefied": value})
    with pytest.raises(DataError, match="kl_nats of the untrained attacker must be a finite"):
        broken(untrained=UNTRAINED | {"kl_nats": value})


def test_a_table_without_words_is_an_error():
    table = words_of(0.1, 0.1).drop(columns="nonword_probe_rate")

    with pytest.raises(DataError, match="must have a column nonword_probe_rate"):
        bands({"attacker": GOOD, "baseline": UNTRAINED}, table, RULES)
