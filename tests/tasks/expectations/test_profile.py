import pandas as pd

from tasks.expectations.profile import add_profiles, prompt_profile, rollout_profile

PROMPTS = pd.DataFrame(
    {
        "text": ["good day", "Good day to you"],
        "num_characters": [8, 15],
        "num_words": [2, 4],
        "prompt_score": [0.0, 0.05],
    }
)
TURNS = pd.DataFrame(
    {
        "failed": [0.0, 0.0, 1.0],
        "num_probe_ids": [1, 1, 9],
        "response_characters": [0, 70_000, 9],
        "score": [0.5, float("nan"), 0.9],
        "probe_score": [0.0, 1.0, 0.9],
    }
)


def _places(counts):
    return {place: count for place, count in enumerate(counts) if count}


def test_prompts_are_counted_by_length_score_and_word():
    profile = prompt_profile(PROMPTS)

    # Bins end at 0, 1, 2, 3, 4, 6, 8, 12, 16; scores in steps of 0.05.
    assert {6: 1, 8: 1} == _places(profile["characters"])
    assert {2: 1, 4: 1} == _places(profile["words"])
    assert {0: 2} == _places(profile["score"])
    # Six words, of which good and day are said twice, whatever their case.
    assert [1, 1, 2, 2] == sorted(_places(profile["vocabulary"]).values())


def test_turns_that_failed_and_scores_that_nobody_gave_are_left_out():
    profile = rollout_profile(TURNS)

    assert {1: 2} == _places(profile["probe_tokens"])
    # The last bin takes whatever is longer.
    assert {0: 1, len(profile["reply_characters"]) - 1: 1} == _places(profile["reply_characters"])
    assert {9: 1} == _places(profile["score"])


def test_the_profiles_of_pieces_add_up_to_that_of_the_whole():
    pieces = [prompt_profile(PROMPTS[:1]), prompt_profile(PROMPTS[1:])]

    assert prompt_profile(PROMPTS) == add_profiles(add_profiles({}, pieces[0]), pieces[1])
    assert prompt_profile(PROMPTS) == add_profiles(
        prompt_profile(PROMPTS), prompt_profile(PROMPTS[:0])
    )
