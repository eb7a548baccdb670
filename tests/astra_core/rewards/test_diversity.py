import math
import random
from itertools import pairwise

import pytest

from astra_core.metrics.diversity import words
from astra_core.rewards import diversity
from astra_core.rewards.diversity import rarities

KNOWN = frozenset(words("you are so very bad why do we ever stop now loud boat"))


def test_a_success_is_as_rare_as_its_share_of_the_scores():
    """Two ways without a common word: three quarters and one quarter of the scores."""
    texts = ["you are bad", "you are bad", "you are bad", "why now"]

    found = rarities(texts, [0.5, 1.0, 0.75, 0.75], KNOWN)

    common, rare = math.log(4 / 3), math.log(4)
    assert found == pytest.approx([0.5 * common, common, 0.75 * common, 0.75 * rare])


def test_a_failure_earns_nothing_and_does_not_count():
    texts = ["you are bad", "why now", "stop"]

    assert [0.0, 0.0, 0.0] == rarities(texts, [0.0] * 3, KNOWN)
    assert rarities(texts, [1.0, 1.0, 0.0], KNOWN) == pytest.approx([math.log(2)] * 2 + [0.0])


def test_a_paraphrase_is_less_rare_than_another_way():
    # "you are bad" and "you are so bad" share 3 words and 1 pair of 4 + 3 + 3 + 2 - 4 = 8.
    near = rarities(["you are bad", "you are so bad"], [1.0, 1.0], KNOWN)
    far = rarities(["you are bad", "why now"], [1.0, 1.0], KNOWN)

    assert near == pytest.approx([math.log(2 / 1.5)] * 2)
    assert far == pytest.approx([math.log(2.0)] * 2)


def test_invented_words_are_one_word_and_earn_less():
    plain = ["you are bad"] * 6
    first, second, known = (
        rarities([*plain, own], [1.0] * 7, KNOWN)[-1]
        for own in ("you are glorp", "you are zork", "you are loud")
    )
    alone = rarities([*plain, "glorp zork"], [1.0] * 7, KNOWN)[-1]

    assert first == second == pytest.approx(known * 2 / 3)
    assert alone == 0.0


def test_order_capitals_and_numbers_change_nothing():
    texts = ["you are bad", "You ARE bad, 12!", "why do we ever stop", "stop now", "?"]
    scores = [0.5, 0.25, 1.0, 0.75, 0.5]
    places = random.Random(0).sample(range(5), 5)

    found = rarities(texts, scores, KNOWN)
    shuffled = rarities([texts[i] for i in places], [scores[i] for i in places], KNOWN)

    assert found[0] == pytest.approx(2 * found[1])
    assert shuffled == pytest.approx([found[i] for i in places])
    assert found[4] == 0.0


def test_the_mean_over_successes_grows_with_the_ways_and_not_with_their_number():
    def mean(num_ways, times):
        texts = [f"{'bad ' * i}you" for i in range(num_ways)]
        return sum(rarities(texts * times, [1.0] * num_ways * times, KNOWN)) / (num_ways * times)

    ways = ["you are bad", "why now", "do we stop", "loud boat"]
    means = [sum(rarities(ways[:n] * 3, [1.0] * n * 3, KNOWN)) / (3 * n) for n in (1, 2, 3, 4)]

    assert means == pytest.approx([math.log(n) for n in (1, 2, 3, 4)])
    assert mean(3, 1) == pytest.approx(mean(3, 7))


def test_many_different_successes_are_compared_in_blocks():
    rng = random.Random(0)
    texts = [" ".join(rng.choices(sorted(KNOWN), k=6)) for _ in range(1200)]

    whole = rarities(texts, [1.0] * len(texts), KNOWN)

    def features(text):
        said = text.split()
        return {*said, *pairwise(said)}

    sets = list(map(features, texts))
    for place in (0, 511, 512, 1199):
        own = sets[place]
        share = sum(len(own & other) / len(own | other) for other in sets) / len(sets)
        assert whole[place] == pytest.approx(-math.log(share))


def test_beyond_a_limit_a_sample_stands_for_all(monkeypatch):
    monkeypatch.setattr(diversity, "_MAX_COMPARED", 1024)
    rng = random.Random(0)
    vocabulary = sorted(KNOWN)
    texts = [" ".join(rng.choices(vocabulary, k=8)) for _ in range(1200)] + ["loud boat"] * 80

    found = rarities(texts, [1.0] * len(texts), KNOWN)

    sets = [{*text.split(), *pairwise(text.split())} for text in texts]
    assert len(set(texts)) > 1024
    for place in (0, 300, 1199, 1200):
        own = sets[place]
        share = sum(len(own & other) / len(own | other) for other in sets) / len(sets)
        assert found[place] == pytest.approx(-math.log(share), rel=0.1)


def test_a_score_next_to_nothing_is_no_error():
    assert rarities(["you", "why"], [5e-324, 1.0], KNOWN) == pytest.approx([0.0, 0.0], abs=1e-9)


def test_no_text_has_no_rarity():
    assert [] == rarities([], [], KNOWN)
