"""Three synthetic attackers that a person can rank, and what the figures say of them."""

import math
import random
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from each_row import each_row
from metrics.test_parts import ENDINGS, KEPT, NOUNS, OPENINGS, PROMPTS, TWENTY_FOUR, VERBS, WAYS

from astra_core.metrics.diversity import distinct_n
from astra_core.rollout import Prompt
from astra_core.seeding import derive_key, generator
from astra_parts.metrics.parts import shared_parts
from astra_parts.metrics.strategies import (
    _labels_of,
    features_of,
    hit_metrics,
    strategies_of,
    strategy_metrics,
    vendi_score,
)
from astra_parts.testing import tiny_graph, tiny_node

TEMPLATES = TWENTY_FOUR
VOCABULARY = frozenset(NOUNS + VERBS + OPENINGS + ENDINGS)


def say(template, rng):
    return template.format(rng.choice(NOUNS), rng.choice(NOUNS))


def collapsed(count, seed=0):
    """As DPO became: two templates make 56 % of the hits."""
    rng = random.Random(seed)
    weights = [28, 28] + [2] * 22
    return [say(rng.choices(TEMPLATES, weights)[0], rng) for _ in range(count)]


def spread(count, seed=0):
    """As GRPO stayed: every template equally often."""
    rng = random.Random(seed)
    return [say(rng.choice(TEMPLATES), rng) for _ in range(count)]


def noisy(count, seed=0):
    """One template whose slots, and half of whose words, are letters thrown together."""
    rng = random.Random(seed)

    def invented():
        return "".join(rng.choices("bcdfghjklmnpqrstvwxz", k=7))

    return [
        f"only bend {invented()} {invented()} then {invented()} {invented()}" for _ in range(count)
    ]


def strategy_labels(texts):
    """By shared words alone, as nobody is asked what succeeds without which."""
    return _labels_of(shared_parts(texts))


def figures(texts, *, rarefied_to=50):
    labels = strategy_labels(texts)
    return hit_metrics(texts, labels, vocabulary=VOCABULARY, rarefied_to=rarefied_to, seed=0)


def measured(graphs, *, threshold=0.5, **options):
    found = strategies_of(graphs, threshold=threshold, seed=0)
    told = {"vocabulary": (), "rarefied_to": 50, "seed": 0}
    return strategy_metrics(graphs, found, threshold=threshold, **told | options)


def test_attackers_rank_as_a_person_would_rank_them():
    narrow, wide, noise = (figures(attacker(400)) for attacker in (collapsed, spread, noisy))

    for name in ("strategies", "strategy_entropy"):
        assert wide[name] > 1.2 * narrow[name] > 1.2 * 2 * noise[name]
    for name in ("top_strategy_share", "top_opening_share"):
        assert 2 * wide[name] < narrow[name] < noise[name]
    assert wide["vendi_score"] > 1.2 * narrow["vendi_score"]
    # Word pairs alone rank the noise first, which is why they are not asked.
    assert distinct_n(noisy(400), 2) > 3 * distinct_n(spread(400), 2)


def test_two_templates_make_the_share_that_they_were_given():
    labels = strategy_labels(collapsed(600))
    shares = sorted(np.bincount(labels) / 600, reverse=True)

    assert sum(shares[:2]) == pytest.approx(0.56, abs=0.05)
    assert shares[2] < 0.08


def test_figures_do_not_depend_on_how_many_hits_there_are():
    few, many = (figures(collapsed(count)) for count in (200, 800))

    assert few["num_hits_compared"] == many["num_hits_compared"] == 50
    for name in ("strategies", "strategy_entropy", "top_strategy_share", "vendi_score"):
        assert few[name] == pytest.approx(many[name], rel=0.15)


def test_the_share_of_distinct_pairs_does_not_depend_on_n():
    """Of two attackers: .73 at 100 probes and .97 at 800 as distinct-2 had it."""

    def share(count):
        ours, theirs = (
            measured([graph_of(attacker(count))], vocabulary=VOCABULARY)
            for attacker in (collapsed, spread)
        )
        return ours["distinct_2_rarefied"] / theirs["distinct_2_rarefied"]

    raw = [distinct_n(collapsed(n), 2) / distinct_n(spread(n), 2) for n in (100, 800)]
    assert abs(raw[1] - raw[0]) > 0.1
    assert share(100) == pytest.approx(share(800), abs=0.05)


def test_numbers_and_invented_words_are_slots():
    masked = features_of("only bend 12 qxq", {"only", "bend"})

    assert masked == features_of("Only bend 7 zzz!", {"only", "bend"})
    assert ("bend", "0") in masked
    assert ("0", "_") in masked
    assert features_of("qxq", ()) == {("qxq",)}


def test_vendi_counts_equal_and_unrelated_texts():
    unrelated = [f"{word} {word}" for word in NOUNS[:8]]

    assert vendi_score(["a b"] * 8, size=8, seed=0) == pytest.approx(1.0)
    assert vendi_score(unrelated, size=8, seed=0) == pytest.approx(8.0)
    assert vendi_score(["a b"] * 4 + ["c d"] * 4, size=8, seed=0) == pytest.approx(2.0)
    assert vendi_score(["", "a"], size=2, seed=0) == pytest.approx(2.0)
    assert vendi_score(spread(60), size=20, seed=1) == vendi_score(spread(60), size=20, seed=1)
    assert vendi_score(spread(60), size=20, seed=1) != vendi_score(spread(60), size=20, seed=2)


def test_vendi_has_no_digits_that_depend_on_the_machine():
    found = vendi_score(spread(60), size=20, seed=1)

    assert found == round(found, 9)


def graph_of(texts, score=0.9):
    nodes = [
        tiny_node(0.0, probe_text=text, score=score, response_scores=(score,)) for text in texts
    ]
    return tiny_graph(*nodes)


def test_only_turns_at_or_above_the_threshold_are_hits():
    graphs = [graph_of(["only bend", "who carry"], score=0.5), graph_of(["why drop"], score=0.49)]

    found = measured(graphs)

    assert (2, 2, 2.0) == tuple(found[n] for n in ("num_hits", "num_hits_compared", "strategies"))
    assert found["unique_probes_rarefied"] == 1.0
    assert found["top_opening_share"] == 0.5


def test_strategies_found_are_of_all_hits_and_the_others_of_as_many_as_are_compared():
    graphs = [graph_of(spread(20))]

    few, many = (measured(graphs, rarefied_to=size) for size in (5, 20))

    assert few["strategies_found"] == many["strategies_found"] == many["strategies"]
    assert few["strategies"] < few["strategies_found"]


def test_attacks_that_differ_in_numbers_and_invented_words_alone_count_once():
    texts = ["only bend 3 doors", "Only bend 12 doors!", "who carry qxq", "who carry zz", "who"]

    assert figures([*texts, *texts])["unique_attacks"] == 3
    assert measured([graph_of(texts[:1]), graph_of(texts[1:], score=0.4)])["unique_attacks"] == 1


def test_a_strategy_is_repeated_when_two_trees_have_hits_of_it():
    graphs = [
        graph_of(["only bend 3 doors", "who carry", "who carry"]),
        graph_of(["only bend 12 doors", "why drop"]),
        graph_of(["why drop"], score=0.4),
    ]

    found = measured(graphs)

    assert (3.0, 1.0) == (found["strategies_found"], found["strategies_repeated"])


def test_nothing_to_count_is_no_number():
    found = measured([])

    counts = {"num_hits", "num_hits_compared", "unique_attacks"}
    counts |= {"strategy_calls", "strategy_hits_asked"}
    assert counts | {"strategies_found", "strategies_repeated"} == {
        name for name, value in found.items() if not math.isnan(value)
    }
    assert 0.0 == found["unique_attacks"] == found["strategies_found"]


def test_figures_of_nothing_have_the_names_of_figures():
    empty, some = (measured(graphs) for graphs in ([], [graph_of(["only bend"])]))

    assert list(some) == list(empty)
    # One of two replies.
    half = measured([graph_of(["only bend"]), graph_of(["only bend"], score=0.1)])
    assert 500.0 == half["unique_attacks_per_1000_replies"]
    two = [graph_of(["who carry qxq", "who carry zz"])]
    for vocabulary, number in ((VOCABULARY, 500.0), ((), 1000.0)):
        found = measured(two, vocabulary=vocabulary)
        assert number == found["unique_attacks_per_1000_replies"]


def test_the_figures_of_hits_are_those_of_the_same_words_and_seed():
    texts = [*noisy(40), *collapsed(40)]
    options = {"vocabulary": VOCABULARY, "rarefied_to": 20, "seed": 3}
    found = measured([graph_of(texts)], **options)

    labels = strategy_labels(texts)

    assert hit_metrics(texts, labels, **options).items() <= found.items()
    other = hit_metrics(texts, labels, **options | {"seed": 4})
    for name in ("top_strategy_share", "top_opening_share", "vendi_score"):
        assert other[name] != found[name]


def test_the_vendi_score_is_the_mean_over_the_draws_that_the_seed_names():
    rng = generator(derive_key(5, "vendi"))
    # Two of one kind count as one text, two of two kinds as two.
    drawn = [rng.choice(8, 2, replace=False) // 4 for _ in range(20)]
    expected = np.mean([1 if one == other else 2 for one, other in drawn])

    assert 1 < expected < 2
    assert pytest.approx(expected) == vendi_score(["a b"] * 4 + ["c d"] * 4, size=2, seed=5)


def test_texts_of_the_same_words_in_another_order_are_near_and_not_equal():
    # A cosine of 2/3: two words of two words and a pair. Eigenvalues 5/6 and 1/6.
    expected = math.exp(-(5 / 6 * math.log(5 / 6) + 1 / 6 * math.log(1 / 6)))

    assert pytest.approx(expected) == vendi_score(["a b", "b a"], size=2, seed=0)


def test_probes_are_counted_by_word_pairs_and_words():
    def found(*texts):
        return measured([graph_of(texts)], rarefied_to=9)

    # ab, bc, ab, bd.
    assert 3 / 4 == pytest.approx(found("a b c", "a b d")["distinct_2_rarefied"])


def test_each_tree_has_the_strategies_of_its_own_hits():
    graphs = [graph_of(["who drop", "why not"]), graph_of(["no hit"], 0.1), graph_of(["why not"])]

    # The most frequent is the first.
    assert ((1, 0), (), (0,)) == strategies_of(graphs, threshold=0.5, seed=0).labels
    assert [2, 0, 1, 0] == strategy_labels(["no hit", "why not", "who drop", "why not"])


def test_what_half_of_the_prompts_say_is_in_no_strategy():
    hits = [graph_of([way.format(kept)]) for way, kept in product(WAYS, KEPT)]
    prompts = [Prompt.of(text) for text in PROMPTS * 2]
    led = [replace(graph, prompt=own) for graph, own in zip(hits, prompts, strict=True)]
    found = [strategies_of(graphs, threshold=0.5, seed=0).labels for graphs in (hits, led)]

    assert [1, 16] == [len({*labels}) for labels in found]


def test_hits_are_asked_about_by_their_number_over_all_graphs():
    graphs = [graph_of(["a who", "b who"]), graph_of(["no hit"], 0.1), graph_of(["c why", "who"])]
    asked = set()

    def ask(questions):
        asked.update(questions)
        return [bool({"who", "why"} & {*text.split()}) for _, text in questions]

    found = strategies_of(graphs, threshold=0.5, seed=0, ask=ask, budget=50)

    assert ((0, 0), (), (1, 0)) == found.labels
    assert 4 == found.num_asked
    assert {(0, "a who"), (1, "b who"), (2, "c why"), (3, "who")} <= asked
    assert found.calls >= len(asked)


def test_the_seed_says_who_is_asked_about_first_and_without_a_budget_nobody_is():
    graphs, asked = [graph_of(spread(30))], []

    def ask(questions):
        asked.extend(questions)
        return [True] * len(questions)

    assert 0 == strategies_of([graph_of(["who"])], threshold=0.5, seed=7, ask=ask).calls
    strategies_of(graphs, threshold=0.5, seed=7, ask=ask, budget=20)
    order = generator(derive_key(7, "counterfactual")).permutation(30)[:20]
    assert order.tolist() == [index for index, _ in asked]


@each_row(
    "texts, number, share",
    [(spread(400), 24, 1 / 24), (collapsed(400), 24, 0.28), (noisy(400), 1, 1.0)],
)
def test_the_number_and_the_largest_share_are_those_of_the_templates(texts, number, share):
    found = figures(texts)

    assert found["strategies_found"] == pytest.approx(number, rel=0.1)
    assert found["top_strategy_share"] == pytest.approx(share, abs=0.05)
