import datetime as dt
import json
import subprocess
import sys
from pathlib import Path

import pytest
from each_row import each_row

from astra_core.config import (
    Choice,
    EvaluationConfiguration,
    GenerationConfiguration,
    RolloutsConfiguration,
    SystemConfiguration,
    TrainingConfiguration,
)
from astra_core.errors import ConfigurationError
from astra_core.registry import BUILT_INS, resolve


def problems(section, record):
    with pytest.raises(ConfigurationError) as caught:
        section.read(record, where="area")
    return str(caught.value).splitlines()


def test_an_unknown_key_is_refused_with_the_nearest_known_one():
    assert ["area.batch_sise is not a known key; did you mean 'batch_size'?"] == problems(
        TrainingConfiguration, {"batch_sise": 4}
    )


def test_an_unknown_key_without_a_near_one_lists_the_known_ones():
    (line,) = problems(RolloutsConfiguration, {"zzz": 4})

    assert line.startswith("area.zzz is not a known key; known keys are [")
    assert "'num_prompts'" in line


def test_an_unknown_key_of_an_inner_section_is_compared_with_the_inner_keys():
    assert [
        "area.early_stopping.patients is not a known key; did you mean 'patience'?"
    ] == problems(TrainingConfiguration, {"early_stopping": {"patients": 3}})


@each_row(
    ("record", "line"),
    [
        ({"lora": {"rnk": 4}}, "area.lora.rnk is not a known key; did you mean 'rank'?"),
        (
            {"parts": {"head": {"pattern": "x", "lr_fctor": 2.0}}},
            "area.parts.head.lr_fctor is not a known key; did you mean 'lr_factor'?",
        ),
        (
            {"optimizer": {"name": "sgd", "option": {}}},
            "area.optimizer.option is not a known key; did you mean 'options'?",
        ),
    ],
)
def test_an_unknown_key_inside_of_an_optional_or_a_mapping_is_compared_there(record, line):
    assert [line] == problems(TrainingConfiguration, record)


def test_every_problem_has_a_line_of_its_own():
    lines = problems(TrainingConfiguration, {"lr": -1, "batch_size": 0, "what": 1})

    assert len(lines) == 3
    assert {"area.lr:", "area.batch_size:", "area.what"} == {line.split(" ")[0] for line in lines}


@each_row(
    ("section", "key", "value"),
    [
        (TrainingConfiguration, "training_steps", "16"),
        (TrainingConfiguration, "training_steps", 16.5),
        (TrainingConfiguration, "training_steps", True),
        (TrainingConfiguration, "training_steps", 0),
        (TrainingConfiguration, "lr", 0.0),
        (TrainingConfiguration, "lr", "3e-3"),
        (TrainingConfiguration, "lr", float("nan")),
        (TrainingConfiguration, "lr", float("inf")),
        (TrainingConfiguration, "max_grad_norm", 0.0),
        (TrainingConfiguration, "precision", "fp16"),
        (TrainingConfiguration, "mode", "maximum"),
        (TrainingConfiguration, "warmup_steps", -1),
        (TrainingConfiguration, "optimizer", 5),
        (GenerationConfiguration, "temperature", 0.0),
        (GenerationConfiguration, "top_p", 0.0),
        (GenerationConfiguration, "top_p", 1.1),
        (GenerationConfiguration, "top_k", -1),
        (GenerationConfiguration, "min_p", -0.1),
        (GenerationConfiguration, "repetition_penalty", 0.0),
        (GenerationConfiguration, "max_new_tokens", 0),
        (SystemConfiguration, "max_context_tokens", 7),
        (EvaluationConfiguration, "threshold", 1.5),
        (EvaluationConfiguration, "confidence", 1.0),
        (RolloutsConfiguration, "max_failed_fraction", 2.0),
    ],
)
def test_a_value_of_the_wrong_type_or_range_is_one_line_that_names_key_and_value(
    section, key, value
):
    (line,) = problems(section, {key: value})

    assert line.startswith(f"area.{key}: ")
    assert line.endswith(f"got {value!r}; see 'astra params area.{key}'")


def test_the_metric_that_chooses_the_best_is_one_of_an_evaluation():
    (line,) = problems(TrainingConfiguration, {"metric": "train/loss"})

    assert line.startswith("area: metric must name an evaluation metric")


def test_a_missing_key_is_named():
    assert ["area.name must be given; see 'astra params area.name'"] == problems(Choice, {})


@each_row("record", [None, [], "text", 3])
def test_a_section_that_is_no_mapping_is_refused(record):
    (line,) = problems(TrainingConfiguration, record)

    assert line.startswith("area: ")


def test_a_date_is_no_plain_value():
    (line,) = problems(Choice, {"name": dt.date(2020, 1, 1)})

    assert "area must hold plain values" in line


def test_a_section_cannot_be_changed():
    config = TrainingConfiguration()

    with pytest.raises(
        ConfigurationError, match=r"got it set later; give lr to Training"
    ) as caught:
        config.lr = 1.0
    assert 1 == len(str(caught.value).splitlines())


def test_an_attribute_is_set_in_init_and_refused_afterwards():
    class Own(TrainingConfiguration):
        def __init__(self):
            super().__init__(lr=0.5)
            self.folder = "checkpoints"

    own = Own()

    assert ("checkpoints", 0.5) == (own.folder, own.lr)
    with pytest.raises(ConfigurationError, match=r"Own\.place must be "):
        own.place = "elsewhere"


def test_a_choice_without_options_is_a_word():
    word = TrainingConfiguration.read({"optimizer": "sgd"}, where="training")

    assert word == TrainingConfiguration.read({"optimizer": {"name": "sgd"}}, where="training")
    assert word == TrainingConfiguration(optimizer="sgd")
    for wrong in (5, "", None, ["sgd"]):
        (line,) = problems(TrainingConfiguration, {"optimizer": wrong})
        assert line.startswith("area.optimizer")


def test_a_section_read_from_its_own_dump_is_the_same():
    config = TrainingConfiguration(lr=0.5, optimizer=Choice(name="sgd", options={"momentum": 0.1}))

    assert config == TrainingConfiguration.read(config.model_dump(mode="json"), where="area")


@pytest.mark.real
def test_naming_plugins_and_reading_configuration_loads_no_torch():
    code = (
        "import sys, astra_core, astra_core.config, astra_core.registry, astra_core.files, "
        "astra_core.errors, astra_core.redaction; sys.exit('torch' in sys.modules)"
    )

    assert 0 == subprocess.run([sys.executable, "-c", code], check=False).returncode


DEFAULTS = json.loads(
    (Path(__file__).parents[1] / "vectors" / "astra_config_defaults.json").read_text("utf-8")
)["cases"]


def test_training_defaults_are_those_of_the_seed_project():
    (expected,) = [c["TrainingConfiguration"] for c in DEFAULTS if "TrainingConfiguration" in c]
    found = TrainingConfiguration().model_dump(include=set(expected))
    found["optimizer"] = found["optimizer"]["name"]

    assert expected == found


def test_the_seed_projects_optimizers_are_known_and_another_is_refused():
    (names,) = [c["valid_optimizers"] for c in DEFAULTS if "valid_optimizers" in c]

    assert set(names) <= set(BUILT_INS["optimizer"])
    with pytest.raises(ValueError, match="unknown optimizer 'lion'"):
        resolve("optimizer", "lion")
