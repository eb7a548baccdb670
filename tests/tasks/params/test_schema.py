from pathlib import Path

import pytest
from each_row import each_row

from astra_core.errors import ConfigurationError
from tasks.machine.environment import needs_hub
from tasks.params.schema import Params, read_params, read_record

ROOT = Path(__file__).parents[3]
PARAMS = ROOT / "params.yaml"


def test_params_yaml_reads_without_the_hub():
    assert not needs_hub(read_params(PARAMS))


def test_numbers_are_yaml_1_2(tmp_path):
    path = tmp_path / "params.yaml"
    path.write_text("training: {lr: 1e-4}\n")

    assert 1e-4 == read_params(path).training.lr


def test_a_section_that_is_left_out_has_its_defaults(tmp_path):
    path = tmp_path / "params.yaml"
    path.write_text("seed: 3\n")

    assert Params(seed=3) == read_params(path)


@each_row(
    ("text", "message"),
    [
        ("seed: [1\n", "must be YAML"),
        ("- seed\n", "must be a mapping of sections, got list"),
        ("", "must be a mapping of sections, got nothing"),
        ("seed: 1\nseed: 2\n", "must be YAML of plain values, got: .*duplicate key"),
    ],
)
def test_a_file_that_is_no_mapping_is_reported_in_one_line(tmp_path, text, message):
    path = tmp_path / "params.yaml"
    path.write_text(text)

    with pytest.raises(ConfigurationError, match=message) as refusal:
        read_params(path)
    assert "\n" not in str(refusal.value)


def test_two_mistakes_are_two_lines():
    record = read_record(PARAMS) | {"seed": -1}
    record["training"]["lr"] = 0.0
    with pytest.raises(ConfigurationError) as refusal:
        Params.read(record, where="")

    assert 2 == len(str(refusal.value).splitlines())


def test_a_plug_in_whose_name_is_left_out_is_the_one_by_default():
    record = {
        "system": {"target": {"options": {"format": "template"}}},
        "training": {"optimizer": {"options": {"weight_decay": 0.5}}, "schedule": "annealing"},
    }
    params = Params.read(record, where="")

    assert ("causal_lm", {"format": "template"}) == (
        params.system.target.name,
        params.system.target.options,
    )
    assert {"name": "adamw", "options": {"weight_decay": 0.5}} == dict(params.training.optimizer)
    assert "annealing" == params.training.schedule.name
    own = {"training": {"schedule": {"options": {"arguments": {"num_cycles": 1}}}}}
    schedule = Params.read(own, where="").training.schedule
    assert {"kind": "cosine", "arguments": {"num_cycles": 1}} == schedule.options
    with pytest.raises(ConfigurationError, match=r"training\.schedule\.options: input should be"):
        Params.read({"training": {"schedule": {"options": 3}}}, where="")
