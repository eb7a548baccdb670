import json
from pathlib import Path

import pytest
from each_row import each_row

from astra_core.config import Choice
from astra_core.errors import ConfigurationError
from tasks.params.reference import SCHEMA_FILE, keys_of, schema_text
from tasks.params.schema import Params, read_params, read_record

ROOT = Path(__file__).parents[3]
PARAMS = ROOT / "params.yaml"
# What DVC compares of a section is what the file says, so that each that a stage reads is in it.
UNREAD = {"executor", "tracking", "promotion", "flow", "hardening"}


def test_every_key_of_a_section_has_a_meaning():
    silent = [key.name for key in keys_of(Params(), {}) if not key.meaning]

    assert not [name for name in silent if ".options." not in name]


def test_params_yaml_is_short_and_has_every_section_that_a_stage_reads():
    record = read_record(PARAMS)
    given = [key for key in keys_of(read_params(PARAMS), record) if key.is_given]

    assert set(Params.model_fields) - UNREAD - {"model_seed"} == set(record)
    assert 25 == len(given)
    assert 60 > len(PARAMS.read_text().splitlines())


@each_row(
    ("section", "expected"),
    [
        ("seed", ["seed: 0  # The root, which those below follow while null."]),
        ("system.roles", ["system.roles: []  # Agents by turn; the last plays all further ones."]),
        ("training.warmup_steps", ["training.warmup_steps: 2  # default 1; Training steps of li"]),
    ],
)
def test_a_key_is_a_line_with_its_default_and_its_meaning(section, expected):
    record = {"training": {"warmup_steps": 2}}
    lines = [key.line() for key in keys_of(Params.read(record, where=""), record, section)]

    assert expected == [line[: len(text)] for line, text in zip(lines, expected, strict=True)]


def test_a_choice_by_its_name_alone_is_given():
    record = {"reward": "adversarial"}
    keys = keys_of(Params.read(record, where=""), record, "reward")

    assert ["reward.name"] == [key.name for key in keys if key.is_given]
    assert {0.3} == {key.default for key in keys if key.name == "reward.options.nll_weight"}


@each_row(
    ("section", "hint"),
    [
        ("trainning.lr", "got 'trainning'; did you mean 'training'?"),
        (".seed", "got '.seed'; did you mean 'seed'?"),
    ],
)
def test_a_section_that_is_not_there_is_refused(section, hint):
    with pytest.raises(ConfigurationError) as caught:
        keys_of(Params(), {}, section)
    assert str(caught.value).endswith(hint)


@each_row(
    ("section", "shown"),
    [
        ("flow.timeouts_s.training", "flow.timeouts_s"),
        ("training.dump_steps.0", "training.dump_steps"),
        ("training.lora.rank", "training.lora"),
        ("reward.options.of_another", "reward.options"),
    ],
)
def test_what_has_no_line_of_its_own_shows_what_leads_to_it(section, shown):
    assert keys_of(Params(), {}, section) == keys_of(Params(), {}, shown)


def test_options_that_must_be_given_are_listed_too():
    target = Choice(name="endpoint", options={"model": "mine", "base_url": "http://127.0.0.1:1/v1"})
    params = Params(system={"target": target})

    assert "system.target.options.model" in {key.name for key in keys_of(params, {}, "system")}


def test_the_schema_is_the_rendered_one_and_takes_what_params_yaml_says():
    from jsonschema import Draft202012Validator

    schema = json.loads(schema_text())
    found = Draft202012Validator(schema)
    record = read_record(PARAMS)

    assert schema_text() == (ROOT / SCHEMA_FILE).read_text()
    assert not list(found.iter_errors(record))
    assert not list(
        found.iter_errors({**record, "reward": "terms", "tracking": {"sinks": ["csv"]}})
    )
    record["training"]["lrr"] = 1e-4
    assert ["lrr"] == [
        word for each in found.iter_errors(record) for word in ("lrr",) if word in each.message
    ]
