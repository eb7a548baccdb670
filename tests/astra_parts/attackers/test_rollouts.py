from scripted_system import system_against

from astra_core.config import Choice
from astra_core.rollout import Prompt
from astra_core.target import Surroundings
from astra_parts.attackers.prompted import chat_model
from astra_parts.attackers.rollouts import Tries
from astra_parts.attackers.scripts import GOAT
from astra_parts.testing import tiny_prompts

PROMPTS = (*tiny_prompts(2), Prompt("w", "why now"))
SHAPE = {"num_rollouts": 2, "depth": 3, "num_responses": 2, "threshold": 0.5, "seed": 0}
SYSTEM = system_against({"when": "why", "turn": 1, "say": ["bad"]})
TRIES = Tries(system=SYSTEM, prompts=PROMPTS, **SHAPE)


def replies(graphs):
    """For each rollout how many replies it asked for."""
    return [[sum(len(n.response_texts) for n in path) for path in own.paths()] for own in graphs]


def test_every_attacker_has_as_many_replies_in_as_many_rollouts():
    told = Choice(name="scripted", options={"rules": [], "otherwise": ["Message: why"]})
    model = chat_model(told, Surroundings(SYSTEM.config))
    prompted, used = TRIES.follow_script(GOAT, model)
    every = [TRIES.plain(), TRIES.best_of(), TRIES.bandit(["why {prompt}"]), prompted]

    assert [[[6, 6]] * 3] * 4 == [replies(graphs) for graphs in every]
    assert [PROMPTS] * 4 == [tuple(own.prompt for own in graphs) for graphs in every]
    assert 3 * 2 * 3 == used.calls


def test_what_is_asked_plainly_is_a_first_turn_each_time():
    *others, why = TRIES.plain()

    assert [0.5] * 6 == [node.score for node in why.nodes()]
    assert {0.0} == {node.score for own in others for node in own.nodes()}


def test_the_best_of_several_are_different_first_turns():
    (path, *_) = TRIES.best_of()[0].paths()

    assert 6 == len(path) == len({node.path for node in path})
    assert all(1 == len(node.path) and node.probe_ids for node in path)
