from scripted_system import system_against

from astra_core.rollout import Failure, Prompt
from astra_core.samplers.level import Growth
from astra_parts.samplers.talks import hold_talks, talks_of, trees

PROMPTS = [Prompt("p", "Hello"), Prompt("q", "Good day")]
SECOND = {"when": "why", "turn": 2, "say": ["bad"]}


def test_who_speaks_may_fail_or_take_something_back():
    talks = talks_of(PROMPTS, 2)

    def speak(alive):
        for talk in alive:
            if talk.prompt.prompt_id == "q" and talk.turns:
                talk.conversation = talks_of([talk.prompt], 1)[0].conversation
        return [Failure("no idea") if own.path == (1,) else "why" for own in alive]

    turns = hold_talks(Growth(system_against(SECOND), 0, "test", 0, 1), talks, speak, depth=3)
    first, lost, other, _ = turns

    assert ("no idea", ()) == (lost.failure, lost.children)
    # The rule holds for the second turn of a conversation alone, and this one never has any.
    scores = [[node.score for node in path] for path in trees(PROMPTS[1:], [other])[0].paths()]
    assert [[0.0, 0.0, 0.0]] == scores
    assert [(0,), (0, 0), (0, 0, 0)] == [n.path for n in (first, *_below(first))]
    assert 0.5 == first.children[0].score
    assert [("p", 2), ("q", 2)] == [
        (own.prompt.prompt_id, len(own.children)) for own in trees(PROMPTS, turns)
    ]


def _below(node):
    return [each for own in node.children for each in (own, *_below(own))]
