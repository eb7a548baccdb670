from dataclasses import replace

from small_world import write_world

from astra_core.rollout import Prompt
from astra_core.testing import tiny_graph, tiny_node
from tasks.records.rollouts import ROLLOUTS_FILE, write_rollouts
from tasks.records.vocabulary import read_vocabulary


def test_the_words_of_prompts_are_known_and_those_two_trees_share(tmp_path):
    write_world(tmp_path)
    valid, rollouts = tmp_path / "data/valid", tmp_path / "data/rollouts"
    plain = read_vocabulary(valid, rollouts)
    trees = [
        replace(tiny_graph(tiny_node(0.0, probe_text=f"zork {word}")), prompt=Prompt(word, "why"))
        for word in ("glip", "glop")
    ]
    rollouts.mkdir()
    write_rollouts(trees, rollouts / ROLLOUTS_FILE)

    known = read_vocabulary(valid, rollouts)

    assert plain
    assert "zork" in known - plain
    assert not {"glip", "glop"} & known
