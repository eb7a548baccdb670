import pytest
from each_row import each_row

from astra_core.config import SystemConfiguration
from astra_core.errors import ConfigurationError
from astra_core.settings.attacker import DEFAULT_INSTRUCTION, AttackerConfiguration, slots_of


def read(**record):
    return SystemConfiguration.read(record, where="system")


def test_the_separator_is_the_default_and_takes_no_words():
    assert "separator" == SystemConfiguration().attacker.format
    for name in ("system_prompt", "instruction"):
        with pytest.raises(ConfigurationError, match=f"{name} must be null when format is"):
            read(attacker={name: "be kind"})


@each_row(
    ("text", "problem"),
    [
        ("{prompts}", r"must not name \{prompts\}"),
        ("say {}", r"must not name \{\}"),
        ("{prompt.text}", r"must not name \{prompt\.text\}"),
        ("{goal!r}", r"must not name \{goal\}"),
        ("{goal:>9}", r"must not name \{goal\}"),
        ("a { alone", "write {{ for a brace"),
        ("a } alone", "write {{ for a brace"),
    ],
)
def test_a_slot_that_cannot_be_filled_is_one_line(text, problem):
    for record in (
        {"attacker": {"format": "template", "instruction": text}},
        {
            "attacker": {"format": "auto"},
            "roles": ["first"],
            "agents": {"first": {"instruction": text}},
        },
    ):
        with pytest.raises(ConfigurationError, match=problem) as caught:
            read(**record)
        assert "\n" not in str(caught.value)


def test_braces_of_an_agent_by_separator_are_plain_text():
    own = read(roles=["first"], agents={"first": {"instruction": "a { alone"}})

    assert "a { alone" == own.agents["first"].instruction


def test_slots_are_found_and_escaped_braces_are_none():
    assert {"goal", "conversation"} == slots_of("{goal} {{prompt}} {conversation}")
    assert {"prompt"} == slots_of(DEFAULT_INSTRUCTION)


def test_an_agent_reads_its_own_instruction_or_the_attackers():
    own = AttackerConfiguration(format="template", instruction="a {goal}", system_prompt="b")

    assert own == own.instruct(None)
    assert ("c", "b") == (own.instruct("c").instruction, own.instruct("c").system_prompt)
