from tasks.figures.categories import category_rates

OPTIONS = {"num_resamples": 100, "confidence": 0.9, "seed": 0}


def test_each_category_has_both_rates_and_the_gain():
    found = category_rates(
        ["a", "b", "a"], attacker=[1.0, 0.5, 0.5], baseline=[0.0, 0.5, 0.5], **OPTIONS
    )

    assert ["a", "b"] == list(found)
    assert (2, 1) == (found["a"].num_prompts, found["b"].num_prompts)
    assert (0.75, 0.25, 0.5) == tuple(
        span.value for span in (found["a"].attacker, found["a"].baseline, found["a"].lift)
    )


def test_prompts_without_categories_have_none():
    assert {} == category_rates((), attacker=[1.0], baseline=[0.0], **OPTIONS)
