from pathlib import Path

import pytest
import yaml
from each_row import each_row

from astra_core.config import Choice
from astra_core.errors import ConfigurationError
from astra_core.registry import build
from astra_parts.rewards.presets import REWARD_PRESETS, reward_preset
from astra_parts.testing import check_reward, tiny_graph, tiny_node, tiny_prompts, tiny_system

ROOT = Path(__file__).parents[3]


@each_row("name", REWARD_PRESETS)
def test_a_preset_is_the_same_in_python_and_in_its_file(name):
    record = yaml.safe_load((ROOT / "params" / f"{name}.yaml").read_text("utf-8"))

    assert Choice.read(record["reward"], where="reward") == reward_preset(name)


@each_row("name", REWARD_PRESETS)
def test_a_preset_is_a_reward(name):
    check_reward(reward_preset(name).name, **reward_preset(name).options)


def test_the_default_is_that_of_params():
    params = yaml.safe_load((ROOT / "params.yaml").read_text("utf-8"))

    assert Choice.read(params["reward"], where="reward") == reward_preset("default")


def test_the_presets_rank_probes_as_their_authors_would():
    """A rude probe pays under astprompter, an invented word is not worth a new one elsewhere."""
    rude = tiny_node(0.0, score=0.5, probe_score=0.9, probe_text="you look calm")
    clean = tiny_node(0.0, score=0.5, probe_score=0.0, probe_text="you look calm")
    invented = tiny_node(0.0, score=0.5, probe_score=0.0, probe_text="gluzzle frobbish")
    gains = {}
    for name in REWARD_PRESETS:
        reward = build("reward", reward_preset(name))
        reward.prepare(tiny_system(1), tiny_prompts(2))
        (graph,) = reward.assign([tiny_graph(rude, clean, invented)])
        first, second, third = (node.reward for node in graph.children)
        gains[name] = (first - second, third - second)

    assert gains["default"][0] < 0.0 < gains["astprompter"][0]
    assert gains["curiosity"][0] == pytest.approx(0.0)
    assert gains["curiosity"][1] < gains["default"][1]


def test_an_unknown_preset_lists_the_known_ones():
    with pytest.raises(
        ConfigurationError, match=r"one of \['default', 'astprompter', 'curiosity'\]"
    ):
        reward_preset("brave")
