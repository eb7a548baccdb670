from astra_core.config import Section
from astra_core.reward import Reward
from astra_core.testing import check_reward, tiny_graph


class Flat(Reward):
    """Remembers nothing."""

    def assign(self, graphs):
        return list(graphs)


def test_a_reward_without_a_memory_need_not_say_so():
    reward = Flat(Section())
    reward.remember([tiny_graph()])
    reward.load_state(reward.state())

    assert {} == reward.state()
    check_reward(Flat)
