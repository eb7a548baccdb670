from dataclasses import replace

import pytest
from each_row import each_row

from astra_core.metrics.statistics import bootstrap_mean, rate_interval
from astra_parts.metrics.categories import MAX_CATEGORIES, category_labels, label_of, means_by_label
from astra_parts.testing import tiny_prompts

BOOTSTRAP = {"num_resamples": 50, "confidence": 0.9, "seed": 3}


def prompts_of(*categories):
    prompts = tiny_prompts(len(categories))
    return [
        replace(prompt, metadata={"category": category})
        for prompt, category in zip(prompts, categories, strict=True)
    ]


def test_labels_are_the_categories_of_the_prompts_in_their_order():
    assert ("fraud", "none", "7", "fraud") == category_labels(prompts_of("fraud", None, 7, "fraud"))


def test_prompts_without_any_category_have_no_labels():
    assert () == category_labels(tiny_prompts(3))
    assert () == category_labels(prompts_of(None, None))
    assert () == category_labels([])


def test_the_rarest_of_too_many_categories_are_other():
    names = [f"c{number:02d}" for number in range(MAX_CATEGORIES + 1)]
    just_enough = category_labels(prompts_of(*names[:MAX_CATEGORIES]))
    too_many = category_labels(prompts_of(*names, names[-1]))

    assert set(names[:MAX_CATEGORIES]) == set(just_enough)
    assert MAX_CATEGORIES == len(set(too_many))
    assert (names[-1], names[-1]) == too_many[-2:]
    assert ("other", "other") == too_many[MAX_CATEGORIES - 2 : MAX_CATEGORIES]


@each_row(
    ("value", "label"),
    [
        ("Malware/Hacking", "Malware/Hacking"),
        ("O1: Toxicity & bias", "O1: Toxicity & bias"),
        ("  two\n words ", "two words"),
        ("Êtres vivants", "Êtres vivants"),
        ("\u4e16\u754c", "\u4e16\u754c"),
        (2.5, "2.5"),
        (False, "False"),
        ("", "none"),
        (None, "none"),
    ],
)
def test_a_name_is_shown_as_it_is(value, label):
    assert label == label_of(value)


@each_row(
    "text",
    [
        "you never listen to me",
        "x" * 41,
        "what? why!",
        "\u4e16\u754c" * 6,
        "red\x1b[31m",
        "left\u202eright",
    ],
)
def test_what_may_be_an_attack_is_masked_and_distinguished(text):
    label = label_of(text)

    assert text not in label
    assert label.isprintable()
    assert len(label) <= 46
    assert label != label_of(f"{text} again")


def test_means_are_those_of_each_label_alone_most_prompts_first():
    found = means_by_label(["a", "b", "b", "a", "b"], [1.0, 0.0, 0.5, 0.0, 1.0], **BOOTSTRAP)

    assert ["b", "a"] == list(found)
    assert bootstrap_mean([0.0, 0.5, 1.0], **BOOTSTRAP) == found["b"]
    assert 0.5 == found["a"].value
    assert found["a"].low < found["a"].high


def test_rates_have_the_intervals_of_rates_where_they_are_said_to_be_rates():
    given = (["a", "a"], [1.0, 1.0])

    assert 1.0 == means_by_label(*given, **BOOTSTRAP)["a"].low
    assert (
        rate_interval(given[1], **BOOTSTRAP)
        == (means_by_label(*given, **BOOTSTRAP, are_rates=True)["a"])
    )


def test_labels_of_equally_many_prompts_are_in_order():
    assert ["a", "b"] == list(means_by_label(["b", "a"], [0.0, 1.0], **BOOTSTRAP))


def test_a_name_as_wide_as_there_is_room_is_kept():
    for narrow, wide in (("a" * 40, "a" * 41), ("\u5b57" * 10, "\u5b57" * 10 + "a")):
        assert narrow == label_of(narrow)
        assert wide != label_of(wide)


def test_there_is_a_label_for_each_value():
    with pytest.raises(ValueError, match="shorter"):
        means_by_label(["fraud", "none"], [0.5], **BOOTSTRAP)
