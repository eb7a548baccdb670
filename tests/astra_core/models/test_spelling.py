import sys
from dataclasses import replace
from types import ModuleType

import pytest
from scripted_system import system_against

from astra_core.conversation import Conversation, Message
from astra_core.errors import ConfigurationError, PluginError
from astra_core.models.spelling import as_read, spell_text, speller
from astra_core.rollout import Prompt
from astra_core.samplers.level import Growth, grow_level, opening
from astra_parts.samplers.rewording import asked_first, first_replies
from astra_parts.testing import tiny_system

PROMPT = Prompt("p", "why")
# What the target reads backwards.
SYSTEM = system_against({"when": "^yhw$", "say": ["bad"]})
SPELLED = replace(SYSTEM, config=SYSTEM.config.model_copy(update={"spelling": "reversed"}))


def test_only_what_the_attacker_said_is_spelled():
    said = Message("user", "why", (3, 4), "v"), Message("assistant", "no")
    talk = Conversation(PROMPT, said)

    assert talk is as_read(talk, None)
    assert (Message("user", "yhw"), said[1]) == as_read(talk, "reversed").messages
    assert () == as_read(talk, "reversed").messages[0].token_ids
    assert PROMPT == as_read(talk, "reversed").prompt


def test_a_sampled_probe_stays_as_it_was_said_and_the_target_reads_it_spelled():
    def turns(system):
        read = []
        respond = type(system.target).respond

        def reading(talks, *rest, **more):
            read.extend(own.messages[-1].text for own in talks)
            return respond(system.target, talks, *rest, **more)

        system.target.respond = reading
        level = grow_level(Growth(system, 0, "test", 0, 1), [opening(PROMPT)], 3)
        del system.target.respond
        return [own.node for own in level.turns], read

    (plain, as_said), (own, backwards) = turns(SYSTEM), turns(SPELLED)

    assert [node.probe for node in plain] == [node.probe for node in own]
    assert as_said == [node.probe_text for node in own]
    assert [text[::-1] for text in as_said] == backwards != as_said


def test_a_target_gives_no_log_probabilities_of_other_tokens_than_were_said():
    plain = tiny_system()
    own = replace(plain, config=plain.config.model_copy(update={"spelling": "reversed"}))

    def turn(system):
        (only,) = grow_level(Growth(system, 0, "test", 0, 1), [opening(PROMPT)], 1).turns
        return only.node

    assert len(turn(plain).probe_ids) == len(turn(plain).target_logprobs)
    assert () == turn(own).target_logprobs
    assert turn(plain).reference_logprobs == pytest.approx(turn(own).reference_logprobs, abs=1e-5)


def test_given_texts_are_spelled_but_not_what_is_no_attack():
    how = {"num_replies": 1, "threshold": 0.5, "seed": 0}

    assert [0.0, 1.0] == asked_first(SYSTEM, [(PROMPT, "why"), (PROMPT, "yhw")], **how)
    assert [1.0, 0.0] == asked_first(SPELLED, [(PROMPT, "why"), (PROMPT, "yhw")], **how)
    assert ["so good"] == first_replies(SPELLED, [(PROMPT, "why")], seed=0)


def test_figures_of_another_spelling_do_not_compare():
    assert SYSTEM.digest() != SPELLED.digest()


def test_figures_of_an_edited_spelling_do_not_compare(tmp_path):
    file = tmp_path / "own.py"
    config = SYSTEM.config.model_copy(update={"spelling": f"{file}:own"})
    own, digests = replace(SYSTEM, config=config), set()
    for code in ("text", "text.upper()"):
        file.write_text(f"def own(text):\n    return {code}\n", "utf-8")
        digests.add(own.digest())

    assert 2 == len(digests)


def test_a_spelling_of_ones_own_is_a_function_of_text(monkeypatch):
    own = ModuleType("own_words")
    own.french, own.none = {"why": "pourquoi"}.get, lambda _: None
    monkeypatch.setitem(sys.modules, "own_words", own)

    assert "pourquoi" == spell_text("why", "own_words:french")
    with pytest.raises(PluginError, match="spelling 'own_words:none' must give a text, got None"):
        spell_text("why", "own_words:none")
    with pytest.raises(ConfigurationError, match=r"got .klingon."):
        speller("klingon")
