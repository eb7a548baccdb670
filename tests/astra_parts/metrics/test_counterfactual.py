"""Rules that a person knows, and what the smallest changes of probes tell of them."""

import random
from collections import Counter

import pytest
from each_row import each_row
from metrics.test_parts import FRAME, NOUNS, TEN, TOPICS, TWENTY_FOUR, filled

from astra_core.metrics.diversity import words
from astra_parts.metrics.counterfactual import _Asker, _Search, parts_of
from astra_parts.metrics.parts import shared_parts

FAMILY = words("mother father sister brother uncle aunt wife husband son daughter")
TRIGGERS = words("harbour radios invoice postmen physics portraits tomatoes lisbon guitar vaccines")


def names_family_in_quotes(text):
    return '"' in text and not {*FAMILY}.isdisjoint(words(text))


def family_hits(count, *, share=0.92):
    """Free text with invented words and a quotation; a share of it names the mother."""
    rng = random.Random(count)
    filler = words("the a very old said so then we went home big tree cat happy little")
    texts = []
    for number in range(count):
        own = [rng.choice(filler) if rng.random() < 0.8 else "".join(rng.choices("bcdf", k=7))]
        own = [*rng.choices(filler, k=rng.randint(4, 12)), *own]
        named = "mother" if number < share * count else rng.choice(FAMILY[1:])
        own.insert(rng.randrange(len(own)), named)
        at = rng.randrange(len(own))
        texts.append(f'{" ".join(own[:at])} "{" ".join(own[at:])}."')
    return texts


def told(texts, rule, *, budget=400, noise=0.0):
    rng = random.Random(5)
    asked = []

    def ask(questions):
        asked.extend(questions)
        return [rule(text) is (rng.random() >= noise) for _, text in questions]

    found = parts_of(texts, ask=ask, budget=budget, seed=0)
    assert len(asked) == found.calls <= budget
    return found


def one_of(parts):
    return lambda text: any(part <= {*words(text)} for part in parts)


def in_frames(word):
    return [f"{text} {word}" for text in filled(TWENTY_FOUR, 48)]


@pytest.mark.real
@each_row(
    "name, texts, rule, expected",
    [
        ("one word in many frames", in_frames("mother"), one_of([{"mother"}]), 1),
        ("ten templates", filled(TEN, 50), one_of([{*words(text)} for text in TEN]), 10),
        ("one frame", filled(FRAME, 50), one_of([{"you", "are", "today"}]), 1),
        ("topics", TOPICS[:10] * 5, one_of([{own} for own in TRIGGERS]), 10),
        ("each of a family", family_hits(60, share=0), names_family_in_quotes, 9),
        ("whatever is said", family_hits(50), lambda _: True, 1),
    ],
)
def test_the_number_of_ways_is_found_within_a_tenth(name, texts, rule, expected):
    assert abs(len({*told(texts, rule).of}) - expected) <= 0.1 * expected, name


@each_row("noise", [0.0, 0.02, 0.05])
def test_one_way_makes_nine_tenths(noise):
    found = told(family_hits(200), names_family_in_quotes, noise=noise)
    top, count = Counter(found.of).most_common(1)[0]

    assert {"mother", '"'} == top
    assert count == pytest.approx(184, abs=14)
    # By words alone each of these hits is a way of its own.
    assert found.num_asked > 50


@each_row("granted, stray", [(0.85, 0.02), (0.7, 0.0), (0.6, 0.02)])
def test_one_way_is_seen_where_the_target_is_provoked_in_some_replies_only(granted, stray):
    rng = random.Random(1)

    def ask(questions):
        chances = [granted if names_family_in_quotes(text) else stray for _, text in questions]
        return [rng.random() < chance for chance in chances]

    found = parts_of(family_hits(200), ask=ask, budget=400, seed=0)

    top, count = Counter(found.of).most_common(1)[0]
    assert {"mother", '"'} == top
    assert count == pytest.approx(184, abs=14)
    assert 0 < found.num_asked
    assert found.calls <= 400


def test_a_part_that_hit_once_by_chance_says_nothing_of_other_hits():
    rng = random.Random(8)
    texts, rule = filled(TEN, 200), one_of([{*words(text)} for text in TEN])
    found = parts_of(
        texts,
        ask=lambda asked: [rng.random() < (0.65 if rule(text) else 0.03) for _, text in asked],
        budget=400,
        seed=8,
    )

    assert 0 < found.num_asked
    assert 20 == max(Counter(found.of).values())


def test_a_target_that_answers_by_chance_is_not_believed():
    texts = family_hits(60)
    found = told(texts, names_family_in_quotes, noise=0.5)

    assert 0 == found.num_asked < found.calls
    assert shared_parts(texts) == found.of


def test_what_the_budget_does_not_cover_is_told_by_what_is_known():
    texts = in_frames("mother")
    rule = one_of([{"mother"}])

    assert 0 == told(texts, rule, budget=10).num_asked
    some = told(texts, rule, budget=90)
    assert 0 < some.num_asked < len(texts)
    assert {frozenset({"mother"})} == {*some.of}


def test_a_target_that_cannot_be_asked_any_more_ends_the_questions():
    texts = filled(TEN, 40)
    answers = iter([[True] * 20])

    found = parts_of(texts, ask=lambda _: next(answers, None), budget=400, seed=0)

    assert (0, 20) == (found.num_asked, found.calls)
    assert shared_parts(texts) == found.of
    assert [] == parts_of([], ask=lambda _: None, budget=9, seed=0).of


def test_after_an_answer_that_does_not_come_nobody_is_asked_again():
    texts, asked = filled(TEN, 21), []

    def ask(questions):
        asked.append(questions)
        return [True] * 20 if len(asked) == 1 else None

    assert 20 == parts_of(texts, ask=ask, budget=400, seed=0).calls
    assert 2 == len(asked)
    # The last question that may be asked is.
    assert 20 == told(texts, lambda _: True, budget=20).calls


def test_rare_words_go_first_so_that_what_hits_have_in_common_stays():
    found = told(["so now dogs", "so now cats"], lambda _: True)

    assert [{"now"}, {"now"}] == found.of


def test_a_hit_that_is_a_known_part_is_asked_about_once():
    # Twenty are said whole and without each of two words, the five others once.
    found = told(["so now"] * 25, one_of([{"so", "now"}]))

    assert (65, 25) == (found.calls, found.num_asked)


def test_what_a_hit_said_of_itself_comes_before_what_others_did():
    texts = ["now dogs", *["now"] * 5]

    def ask(questions):
        return [("dogs" if index == 0 else "now") in text for index, text in questions]

    assert [{"dogs"}, *[{"now"}] * 5] == list(parts_of(texts, ask=ask, budget=99, seed=0).of)


def test_without_questions_parts_are_shared_words():
    texts = [f"{noun} now" for noun in NOUNS]

    found = parts_of(texts, ask=None, budget=400, seed=0)

    assert ([{"now"}] * len(NOUNS), 0, 0) == (found.of, found.calls, found.num_asked)


NOW = frozenset({"now"})


def search(texts, *answers, budget=400, times=1):
    """A search whose questions have these answers, round by round, and what it asks."""
    asked, rounds = [], iter(answers)

    def ask(questions):
        asked.append([text for _, text in questions])
        return next(rounds, None)

    return _Search(texts, _Asker(ask, budget, times=times)), asked


def test_a_part_is_known_while_half_of_those_asked_again_hit():
    own, _ = search(["now dogs", "now cats", "now birds"], [True, False], [False])
    own.found[2] = NOW
    assert NOW == own.known_part(0)
    own.look_at([0, 1])

    assert (2, 1) == (own.asked_again[NOW], own.confirmed[NOW])
    assert NOW == own.known_part(1)
    own.asked_again[NOW] += 1
    assert own.known_part(1) is None


@each_row("num_hits, times, expected", [(1, 1, NOW), (1, 2, None), (1, 3, None), (2, 3, NOW)])
def test_where_replies_vary_a_part_is_told_once_two_hits_have_it(num_hits, times, expected):
    own, _ = search(["now dogs", "now cats", "now birds"], times=times)
    own.found.update(dict.fromkeys(range(num_hits), NOW))

    assert expected == own.inferred_part(2)


def test_hits_are_begun_again_once_each_question_is_asked_twice():
    own, asked = search(
        [f"now {noun}" for noun in NOUNS[:15]], [True] * 12 + [False] * 3, [False] * 15
    )
    own.look_at(range(15))

    assert own.is_believed
    assert (2, 2) == (own.asker.times, len(asked))


@each_row(
    "repeated, stray, believed, times",
    [
        # Out of twenty hits; None: nobody is asked about stray words.
        (18, None, True, 1),
        (17, 0, True, 2),
        (17, 1, True, 2),
        (17, 2, False, 1),
        (8, 0, True, 6),
        (7, None, False, 1),
    ],
)
def test_replies_are_believed_that_repeat_and_seldom_hit_by_chance(
    repeated, stray, believed, times
):
    texts = ["so now dogs", *["so now"] * 18, ""]
    told = [True] * (stray or 0) + [False] * (20 - (stray or 0))
    own, asked = search(texts, told)

    assert believed is own._is_believed(range(20), repeated / 20)
    assert times == own.asker.times
    # The rarest word alone, and nothing where there is no word.
    rarest = [["dogs", *["so"] * 18, ""]]
    assert ([] if stray is None else rarest) == asked
