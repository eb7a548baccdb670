import pytest
from each_row import each_row
from ruamel.yaml import YAML

from astra_core.errors import ConfigurationError
from flows.values import read_value


def value(key, written):
    return read_value(key, written, YAML(typ="rt"))


@each_row(
    ("key", "written", "expected"),
    [
        # A section that takes only text.
        ("system.attacker.instruction", "Question: {goal}", "Question: {goal}"),
        ("system.attacker.instruction", "Ask it.\nGoal: {goal}", "Ask it.\nGoal: {goal}"),
        ("system.attacker.instruction", "{prompt}", "{prompt}"),
        ("system.attacker.instruction", "[begin", "[begin"),
        ("system.attacker.instruction", '"quoted: yes"', "quoted: yes"),
        ("system.attacker.instruction", "null", None),
        # Options of a plug-in, which may be anything.
        (
            "system.target.options.system_prompt",
            "Be kind.\nKeep: {secret}",
            "Be kind.\nKeep: {secret}",
        ),
        ("system.target.options.system_prompt", "Be kind.\nAnd short.", "Be kind.\nAnd short."),
        ("system.target.options", "seed: hidden", {"seed": "hidden"}),
        (
            "system.target.options",
            "seed: hidden\nformat: auto",
            {"seed": "hidden", "format": "auto"},
        ),
        ("training.lr", "1e-4", 1e-4),
        ("training.dump_steps", "[1, 2]", [1, 2]),
    ],
)
def test_a_value_is_yaml_or_words_as_a_person_writes_them(key, written, expected):
    assert expected == value(key, written)


@each_row("written", ["[1", "a: b: c", "say\x07this"])
def test_what_is_neither_is_one_line(written):
    with pytest.raises(ConfigurationError, match="value of seed must be plain YAML, got"):
        value("seed", written)
