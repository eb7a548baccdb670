import math
from types import MappingProxyType

import pytest
from each_row import each_row

from astra_core.config import SystemConfiguration
from astra_core.rewards.adversarial import AdversarialReward
from astra_core.samplers.tree import TreeSampler
from astra_core.target import Surroundings
from astra_core.targets.causal_lm import CausalLM
from astra_parts.targets.scripted import Scripted
from astra_parts.testing import tiny_language_model, tiny_prompts, tiny_system
from tasks.trials.measurement import amount_of


class Counting(CausalLM):
    """A target that counts what passes."""

    calls = tokens_in = tokens_out = 0

    def respond(self, *arguments, **more):
        answers = super().respond(*arguments, **more)
        for answer in answers:
            read = len(answer.heard.context_ids)
            assert answer.usage.tokens_in >= read
            self.calls += len(answer.replies)
            self.tokens_in += answer.usage.tokens_in * len(answer.replies)
            self.tokens_out += sum(len(reply.token_ids) for reply in answer.replies)
        return answers


class Billed(Scripted):
    """A target elsewhere, which counts what its account has used."""

    counted = MappingProxyType({})

    def figures(self):
        return self.counted


def rolled_out_by(system):
    prompts = tiny_prompts(3)
    sampler = TreeSampler(
        TreeSampler.Options(tree_width=2, tree_depth=2, num_responses=2),
        system=system,
        prompts=prompts,
        reward=AdversarialReward(AdversarialReward.Options()),
        seed=1,
    )
    return sampler.roll_out(prompts, iteration=0)


@each_row("vocabulary", ["shared", "bytes"])
def test_the_tokens_of_a_target_are_those_that_it_read_and_wrote(vocabulary):
    other = {} if vocabulary == "shared" else {"vocabulary": None}
    counting = Counting.of(tiny_language_model(2, **other), tiny_system().config)
    system = tiny_system(1, target=counting)
    graphs = rolled_out_by(system)
    found = amount_of(system, graphs, seconds=6.0)

    assert 2.0 == found.seconds
    assert (counting.calls, counting.tokens_in, counting.tokens_out) == pytest.approx(
        (3 * found.calls, 3 * found.tokens_in, 3 * found.tokens_out)
    )
    assert found.calls == 2 * (2 + 4)
    assert amount_of(system, graphs, seconds=6.0, num_prompts=1).calls == 3 * found.calls


def test_no_conversation_takes_nothing():
    assert 0.0 == amount_of(tiny_system(), [], seconds=0.0).calls


def test_the_tokens_of_a_target_elsewhere_are_those_of_its_account():
    options = Scripted.Options.read({"rules": [{"say": ["no"]}]}, where="options")
    target = Billed(options, surroundings=Surroundings(SystemConfiguration()))
    system = tiny_system(1, target=target)
    graphs = rolled_out_by(system)

    uncounted = amount_of(system, graphs, seconds=6.0)
    target.counted = {"calls": 72.0, "tokens_in": 720.0, "tokens_out": 144.0}
    counted = amount_of(system, graphs, seconds=6.0)

    assert uncounted.calls == counted.calls == 2 * (2 + 4)
    assert math.isnan(uncounted.tokens_in)
    assert math.isnan(uncounted.tokens_out)
    assert 0.0 == (uncounted * 0).tokens_in
    assert (counted.tokens_in, counted.tokens_out) == (120.0, 24.0)
