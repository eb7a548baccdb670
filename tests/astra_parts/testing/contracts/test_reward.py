import pytest
from each_row import each_row

from astra_core.registry import BUILT_INS
from astra_core.rewards.adversarial import AdversarialReward
from astra_parts.testing import check_reward


@each_row("name", BUILT_INS["reward"])
def test_every_built_in_reward_keeps_the_contract(name):
    check_reward(name)


class _Remembering(AdversarialReward):
    def assign(self, graphs):
        rewarded = super().assign(graphs)
        self.remember(rewarded)
        return rewarded


class _Forgetful(AdversarialReward):
    def load_state(self, state):
        pass


@each_row(
    ("reward", "promise"),
    [(_Remembering, "assign remembers nothing"), (_Forgetful, "all of the memory")],
)
def test_a_reward_that_breaks_a_promise_is_reported_with_it(reward, promise):
    with pytest.raises(AssertionError, match=promise):
        check_reward(reward)
