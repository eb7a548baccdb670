import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from each_row import each_row
from ruamel.yaml import YAML

from astra_core.errors import ConfigurationError
from astra_core.registry import read_options
from tasks.machine.environment import needs_hub
from tasks.params.schema import Params, read_params, read_record

ROOT = Path(__file__).parents[3]
PARAMS = ROOT / "params.yaml"
# A choice's options are read by the plug-in; a null model and the flow's limits may hold anything.
OPEN = {"options", "reference", "timeouts_s"}


def _keys(record: dict[str, Any], place: str = "") -> Iterator[str]:
    for key, value in record.items():
        yield f"{place}{key}"
        if isinstance(value, dict) and key not in OPEN:
            yield from _keys(value, f"{place}{key}.")


def test_params_yaml_names_every_key():
    # DVC compares what the file says: a default that only the code names can change unseen.
    assert set(_keys(Params().model_dump())) == set(_keys(read_record(PARAMS)))


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


def _leaves(record, above=""):
    """Every value by its key with dots; the options of a plug-in are its own."""
    for key, value in record.items():
        if isinstance(value, dict) and key != "options":
            yield from _leaves(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _left_out(text):
    """What the lines of params.yaml say that a key is where it is left out, by its last name."""
    said = re.findall(r"^ *(\w+): [^\n#]*# [^\n]*?left out: (\S+)$", text, flags=re.MULTILINE)
    return {name: YAML(typ="safe", pure=True).load(value) for name, value in said}


def test_params_yaml_says_where_it_departs_from_the_defaults():
    here = read_params(ROOT / "params.yaml")
    chosen = dict(_leaves(here.model_dump(mode="json")))
    options = {key for key in chosen if key.endswith("options")}
    defaults = dict(_leaves(Params().model_dump(mode="json")))
    departs = {
        key: defaults[key] for key in chosen.keys() - options if chosen[key] != defaults[key]
    }
    said = _left_out((ROOT / "params.yaml").read_text(encoding="utf-8"))

    assert {key.rpartition(".")[2]: value for key, value in departs.items()} | _other_options(
        here
    ) == said


def _other_options(params):
    """Options of plug-ins that are not as they are where they are left out, and what that is."""
    choices = {
        "sampler": params.rollouts.sampler,
        "reward": params.reward,
        "scorer": params.system.scorer,
        "target": params.system.target,
        "algorithm": params.training.algorithm,
        "optimizer": params.training.optimizer,
        "schedule": params.training.schedule,
        "trainer": params.training.trainer,
    }
    found = {}
    for kind, choice in choices.items():
        own = read_options(kind, choice).model_dump(mode="json")
        plain = read_options(kind, choice.model_copy(update={"options": {}})).model_dump(
            mode="json"
        )
        found |= {name: plain[name] for name in plain if own[name] != plain[name]}
    return found


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
