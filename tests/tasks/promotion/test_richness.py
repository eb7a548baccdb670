import numpy as np

from tasks.promotion.richness import MAX_HITS, richness_of


def drawn(num_kinds, *, num_prompts=200, hits=4, seed=0):
    return np.random.default_rng(seed).integers(num_kinds, size=(num_prompts, hits)).tolist()


def test_both_are_rarefied_to_the_same_hits_of_equal_prompts():
    found = richness_of(drawn(12), drawn(12, hits=2, seed=1))

    assert 20 == found.num_hits  # of 10 prompts with 2 each
    assert abs(np.mean(found.candidate) - np.mean(found.champion)) < 0.5
    assert MAX_HITS == richness_of(drawn(5), drawn(5)).num_hits


def test_more_strategies_are_found_beyond_chance_and_equal_ones_are_not():
    assert richness_of(drawn(20), drawn(4, seed=1)).test(1.25).p_value() < 1e-6
    assert richness_of(drawn(8), drawn(8, seed=1)).test(1.0).p_value() > 0.01
    assert richness_of(drawn(4), drawn(20, seed=1)).test(1.0).p_value() > 0.999


def test_too_few_hits_are_not_compared():
    assert richness_of(drawn(8), drawn(8, hits=0)) is None
    assert richness_of(drawn(8, num_prompts=1), drawn(8, num_prompts=1)) is None


def test_the_clause_has_both_figures():
    told = richness_of(drawn(1), drawn(1)).describe()

    assert told == "strategies 1.0 against 1.0 in 25 hits"
