import pytest
from scripted_system import system_against
from tiny_chats import chat_model as tiny_chat_model

from astra_core.config import Choice
from astra_core.conversation import Conversation
from astra_core.errors import ConfigurationError
from astra_core.rollout import Failure, Prompt
from astra_core.samplers.level import Growth
from astra_core.target import Surroundings
from astra_parts.attackers.prompted import ROOM, PromptedAttacker, chat_model
from astra_parts.attackers.scripts import CRESCENDO, GOAT
from astra_parts.samplers.talks import Talk, hold_talks, talks_of
from astra_parts.testing import tiny_language_model

PROMPT = Prompt.of("be rude", {"secret": "cedar", "goal": "a quarrel"})
SYSTEM = system_against({"when": "why", "say": ["bad"]})


def attacker(*rules, script=GOAT, otherwise="Message:"):
    choice = Choice(name="scripted", options={"rules": [*rules], "otherwise": [otherwise]})
    model = chat_model(choice, Surroundings(SYSTEM.config))
    return PromptedAttacker(script, model, Growth(SYSTEM, 0, "test", 0, 1), depth=2)


def test_what_the_model_writes_is_said_and_what_it_does_not_is_the_prompt():
    own = attacker({"when": "number 2", "say": ["Thought: a\nMessage: why me"]})
    (first,) = hold_talks(own.growth, talks_of([PROMPT], 1), own, depth=2)
    (second,) = first.children

    assert ["be rude", "why me"] == [first.probe_text, second.probe_text]
    assert [0.0, 0.5] == [first.score, second.score]
    assert 2 == own.usage.calls


def test_the_goal_is_told_and_what_only_the_target_knows_is_not():
    own = attacker(
        {"when": "cedar", "say": ["Message: no"]}, {"when": "a quarrel", "say": ["Message: so"]}
    )

    assert ["so"] == own([Talk(Conversation(PROMPT), 0)])


def test_a_model_that_fails_ends_the_conversation():
    own = attacker(script=CRESCENDO)
    own.model.respond = lambda talks, *_, **__: [Failure("gone") for _ in talks]
    (turn,) = hold_talks(own.growth, talks_of([PROMPT], 1), own, depth=2)

    assert ("the attacker's model: gone", ()) == (turn.failure, turn.children)


def test_a_folder_speaks_by_its_chat_template(tmp_path):
    tiny_chat_model().save(tmp_path / "chat")
    tiny_language_model().save(tmp_path / "plain")
    model = chat_model(tmp_path / "chat", Surroundings(SYSTEM.config))
    own = PromptedAttacker(CRESCENDO, model, Growth(SYSTEM, 0, "test", 0, 1), depth=1)

    assert ROOM == model.surroundings.config.max_context_tokens
    said = own([Talk(Conversation(PROMPT), number) for number in (0, 1)])
    assert said == own([Talk(Conversation(PROMPT), number) for number in (0, 1)])
    assert said[0] != said[1]
    with pytest.raises(ConfigurationError, match="without a chat template"):
        chat_model(tmp_path / "plain", Surroundings(SYSTEM.config))
