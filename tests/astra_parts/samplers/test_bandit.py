import random

from scripted_system import system_against

from astra_core.rollout import Prompt
from astra_core.samplers.level import Growth
from astra_parts.samplers.bandit import (
    WINNERS,
    ConversationLines,
    conversations,
    first_scores,
    halve,
    pulling,
    replay,
)
from astra_parts.testing import tiny_graph, tiny_node

PROMPTS = [Prompt(f"p{number}", f"Hello {number}") for number in range(3)]
RULE = {"when": "why", "say": ["so bad"]}


def noisy(rates, seed=0):
    """Replies that are bad with the probability that is each probe's own."""
    rng = random.Random(seed)

    def pull(_number, texts, times):
        return [[float(rng.random() < rates[text]) for _ in range(times)] for text in texts]

    return pull


def test_the_best_of_many_are_found_within_the_budget():
    rates = {f"{number}": 0.9 if number < WINNERS else 0.1 for number in range(1280)}
    pull = noisy(rates)
    first = dict(zip(rates, pull(0, list(rates), 3), strict=True))

    found = halve(first, pull, threshold=0.5, budget=4800)

    assert 1280 == found.num_probes
    # Rounds of 960: 640 probes once, 320 three times, then 160, 80 and 40.
    assert 3840 + 640 + 4 * 960 == found.calls
    # By the first three replies alone, one in a thousand bad ones looks as good as three in four.
    assert 5 <= len(found.winners) == sum(rates[text] > 0.5 for text in found.winners) <= WINNERS


def test_few_probes_or_no_budget_need_no_search():
    scores = {"low": [0.1], "none": [], "high": [0.6, 0.9], "half": [0.6, 0.1]}

    assert ("high",) == halve(scores, noisy({}), threshold=0.5, budget=99).winners
    many = {f"{number}": [number / 100] for number in range(100)}
    found = halve(many, noisy({}), threshold=0.5, budget=0)
    assert ("99", "98") == found.winners[:2]
    assert (WINNERS, 100) == (len(found.winners), found.calls)
    assert () == halve({}, noisy({}), threshold=0.5, budget=99).winners


def test_scores_of_equal_probes_are_put_together():
    graph = tiny_graph(
        tiny_node(0.0, probe_text="a", response_scores=(1.0, None)),
        tiny_node(0.0, probe_text="a", response_scores=(0.5,)),
    )

    assert {"a": [1.0, 0.5]} == first_scores([graph, tiny_graph()])


def test_the_target_is_asked_by_keys():
    system = system_against(RULE)
    pull = pulling(system, PROMPTS, seed=0)

    assert [(0.5, 0.5), (0.0, 0.0)] == pull(0, ["why", "no"], 2)
    rollouts = [
        replay(system, PROMPTS, ["why", "no", "so"], shape=(2, 2, 1), seed=seed)
        for seed in (0, 0, 1)
    ]
    assert rollouts[0] == rollouts[1] != rollouts[2]
    paths = [path for graph in rollouts[0] for path in graph.paths()]
    assert 3 * 2 == len(paths)
    # No probe twice in a rollout while there are others.
    assert all(2 == len({node.probe_text for node in path}) for path in paths)


PROMPT = Prompt("p", "Hello")
SECOND = {"when": "why", "turn": 2, "say": ["so bad"]}


def said(*lines, target=SECOND):
    return conversations(Growth(system_against(target), 0, "test", 0, 2), lines)


def test_probes_are_said_turn_by_turn_and_the_replies_judged():
    first, other = said(
        ConversationLines(PROMPT, 0, ("why", "why me")),
        ConversationLines(PROMPT, 1, ("no", "never")),
    )

    assert ["why", "why me"] == [node.probe_text for node in (first, *first.children)]
    assert [(0,), (0, 0), (1,)] == [first.path, first.children[0].path, other.path]
    # The rule holds in the second turn alone, where one of two words is bad; each gets two replies.
    assert [(0.0, 0.0), (0.5, 0.5)] == [own.judged_scores for own in (first, *first.children)]
    assert (0.0, 0.0) == other.children[0].judged_scores


def test_nothing_said_is_nothing_asked():
    assert [] == said()
