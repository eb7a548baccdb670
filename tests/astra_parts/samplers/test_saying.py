from scripted_system import system_against

from astra_core.rollout import Prompt
from astra_core.samplers.level import Growth
from astra_parts.samplers.saying import Lines, conversations

PROMPT = Prompt("p", "Hello")
SECOND = {"when": "why", "turn": 2, "say": ["so bad"]}


def said(*lines, target=SECOND):
    return conversations(Growth(system_against(target), 0, "test", 0, 2), lines)


def test_probes_are_said_turn_by_turn_and_the_replies_judged():
    first, other = said(Lines(PROMPT, 0, ("why", "why me")), Lines(PROMPT, 1, ("no", "never")))

    assert ["why", "why me"] == [node.probe_text for node in (first, *first.children)]
    assert [(0,), (0, 0), (1,)] == [first.path, first.children[0].path, other.path]
    # The rule holds in the second turn alone, where one of two words is bad; each gets two replies.
    assert [(0.0, 0.0), (0.5, 0.5)] == [own.judged_scores for own in (first, *first.children)]
    assert (0.0, 0.0) == other.children[0].judged_scores


def test_nothing_said_is_nothing_asked():
    assert [] == said()
