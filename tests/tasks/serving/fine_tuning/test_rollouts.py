import dataclasses
from collections import Counter

import pytest
from job_service import ASKED, SAID, WORSE

from astra_parts.testing import tiny_system
from tasks.serving.fine_tuning.lines import FileError, TrainingExample
from tasks.serving.fine_tuning.rollouts import ExampleSampler, KeptReward

CONTEXT = ({"role": "user", "content": ASKED},)
GOOD = TrainingExample(1, CONTEXT, {"role": "assistant", "content": SAID})
PAIR = dataclasses.replace(GOOD, worse={"role": "assistant", "content": WORSE})


def sampler_of(*examples, passes=2):
    return ExampleSampler(tiny_system(0), examples, seed=1, num_passes=passes)


def test_an_answer_is_a_turn_after_its_context():
    sampler = sampler_of(GOOD)
    model = sampler.system.attacker
    (graph,) = sampler.roll_out(sampler.prompts, iteration=0)
    (node,) = graph.children

    assert model.closed_ids(model.encode(ASKED)) == node.context_ids
    assert model.closed_ids(model.encode(SAID)) == node.probe_ids
    assert 1.0 == node.reward
    (wanted,) = model.continuation_logprobs([node.context_ids], [node.probe_ids])
    assert wanted == node.probe_logprobs == node.reference_logprobs


def test_a_preference_is_two_turns_and_the_reward_says_which_is_better():
    sampler = sampler_of(PAIR)
    graphs = sampler.roll_out(sampler.prompts, iteration=0)
    better, worse = KeptReward(KeptReward.Options()).assign(graphs)[0].children

    assert (1.0, 0.0) == (better.reward, worse.reward)
    assert (
        sampler.system.attacker.closed_ids(sampler.system.attacker.encode(WORSE)) == worse.probe_ids
    )


def test_preferences_alone_are_siblings():
    assert sampler_of(PAIR, PAIR).has_siblings
    assert not sampler_of(GOOD).has_siblings


def test_every_example_comes_in_every_pass_and_then_no_more():
    sampler = sampler_of(*[GOOD] * 5)
    updates = [sampler.episodes(number, 3) for number in range(4)]

    assert [3, 3, 3, 1] == list(map(len, updates))
    assert {2} == set(Counter(own.prompt_id for each in updates for own in each).values())


def test_a_long_context_loses_its_oldest_tokens_and_a_long_answer_is_refused():
    long = " ".join(["so"] * 200)
    sampler = sampler_of(dataclasses.replace(GOOD, context=({"role": "user", "content": long},)))
    (graph,) = sampler.roll_out(sampler.prompts, iteration=0)
    (node,) = graph.children

    assert 128 == len(node.context_ids) + len(node.probe_ids)
    answer = {"role": "assistant", "content": long}
    with pytest.raises(FileError, match=r"line 1 .* shorter than 128 tokens"):
        sampler_of(dataclasses.replace(GOOD, answer=answer))
