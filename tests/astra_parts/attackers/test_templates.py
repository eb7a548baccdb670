from scripted_system import system_against

from astra_core.rollout import Prompt
from astra_core.samplers.level import Growth
from astra_parts.attackers.templates import TEMPLATES, TemplateBandit, bandit_turns, fill
from astra_parts.samplers.talks import talks_of

PROMPTS = [Prompt(f"p{number}", f"hello {number}") for number in range(20)]
ARMS = ("{prompt}", "why {prompt}", "{reversed}")


def probes(seed, count=4):
    talks = talks_of(PROMPTS, count)
    growth = Growth(system_against({"when": "why", "say": ["bad"]}), 0, "test", 0, 1)
    bandit = TemplateBandit(ARMS, 0.5, seed)
    turns = bandit_turns(growth, talks, bandit, depth=2)
    # Of the last batch it has not yet looked at the last turns, 16 of them.
    assert count * len(PROMPTS) * 2 - 16 == sum(map(sum, bandit.counts)) - 2 * len(ARMS)
    said = {at: [(own.number, own.turns[at].probe_text) for own in talks] for at in (0, -1)}
    return said, turns


def test_what_succeeds_is_said_more_often():
    said, turns = probes(0)
    first, last = (
        [text for number, text in said[turn] if number == at] for turn, at in ((0, 0), (-1, 3))
    )

    assert 3 <= sum("why" in text for text in first[:16]) <= 10
    # One of three arms succeeds: by the last conversations hardly another is tried.
    assert sum("why" in text for text in last) >= 18
    assert turns == probes(0)[1] != probes(1)[1]


def test_our_own_templates_have_slots_that_are_filled():
    texts = [fill(template, Prompt("p", "where {is} it?")) for template in TEMPLATES]

    assert len(texts) == len({*texts})
    assert "where {is} it?" == texts[0]
