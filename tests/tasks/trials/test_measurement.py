import pytest
from each_row import each_row

from astra_core.rewards.adversarial import AdversarialReward
from astra_core.samplers.tree import TreeSampler
from astra_core.targets.causal_lm import CausalLM
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


@each_row("vocabulary", ["shared", "bytes"])
def test_the_tokens_of_a_target_are_those_that_it_read_and_wrote(vocabulary):
    other = {} if vocabulary == "shared" else {"vocabulary": None}
    counting = Counting.of(tiny_language_model(2, **other), tiny_system().config)
    system = tiny_system(1, target=counting)
    prompts = tiny_prompts(3)
    sampler = TreeSampler(
        TreeSampler.Options(tree_width=2, tree_depth=2, num_responses=2),
        system=system,
        prompts=prompts,
        reward=AdversarialReward(AdversarialReward.Options()),
        seed=1,
    )
    graphs = sampler.roll_out(prompts, iteration=0)
    found = amount_of(system, graphs, seconds=6.0)

    assert 2.0 == found.seconds
    assert (counting.calls, counting.tokens_in, counting.tokens_out) == pytest.approx(
        (3 * found.calls, 3 * found.tokens_in, 3 * found.tokens_out)
    )
    assert found.calls == 2 * (2 + 4)
    assert amount_of(system, graphs, seconds=6.0, num_prompts=1).calls == 3 * found.calls


def test_no_conversation_takes_nothing():
    assert 0.0 == amount_of(tiny_system(), [], seconds=0.0).calls
