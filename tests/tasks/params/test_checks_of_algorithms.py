"""What an algorithm asks of sampler and models is checked before any weights load."""

from typing import Any

import pytest
from each_row import each_row

from astra_core.algorithm import Algorithm
from astra_core.errors import ConfigurationError
from astra_core.samplers.tree import TreeSampler
from astra_parts.algorithms.ppo import PPO
from astra_parts.testing import tiny_language_model
from tasks.params.checks import check_params
from tasks.params.schema import Params


class _Terse(TreeSampler):
    """Computes no reference log-probabilities."""

    gives = frozenset({"siblings"})


class _Straight(TreeSampler):
    """Follows one path."""

    gives = frozenset({"reference"})


class _Headless(PPO):
    """Asks for a value head and brings none."""

    parameters = Algorithm.parameters


def _check_choice(
    algorithm: str, options: dict[str, Any], sampler: str = "tree", **models: Any
) -> None:
    record = {
        "training": {"algorithm": {"name": algorithm, "options": options}},
        "rollouts": {"sampler": {"name": sampler}},
        "models": models,
    }
    check_params(Params.read(record, where=""))


@each_row(
    ("algorithm", "options"),
    [
        ("dpo", {}),
        ("trajectory_balance", {}),
        ("rloo", {}),
        ("ppo", {}),
        ("grpo", {"kl": "loss"}),
        ("reinforce", {"kl": "reward"}),
        ("distillation", {}),
    ],
)
def test_a_sampler_without_reference_is_refused_where_one_is_needed(algorithm, options):
    with pytest.raises(ConfigurationError, match="must give reference log-prob") as refusal:
        _check_choice(algorithm, options, f"{__name__}:_Terse")

    assert 1 == len(str(refusal.value).splitlines())


@each_row(
    ("algorithm", "options"),
    [
        ("grpo", {"kl": "none"}),
        ("reinforce", {}),
        ("rloo", {"kl": "none"}),
        ("ppo", {"kl": "none"}),
        ("sft", {}),
        ("expert_iteration", {}),
        ("distillation", {"teacher": "target"}),
    ],
)
def test_a_sampler_without_reference_serves_who_needs_none(algorithm, options):
    _check_choice(algorithm, options, f"{__name__}:_Terse")


@each_row(
    ("algorithm", "options"),
    [
        ("dpo", {}),
        ("grpo", {}),
        ("expert_iteration", {}),
        ("reinforce", {"baseline": "leave_one_out"}),
    ],
)
def test_a_sampler_without_siblings_is_refused_where_they_are_compared(algorithm, options):
    with pytest.raises(ConfigurationError, match="must try several probes") as refusal:
        _check_choice(algorithm, options, f"{__name__}:_Straight")

    assert 1 == len(str(refusal.value).splitlines())


def test_runs_that_are_compared_must_be_made():
    grpo = {"name": "grpo", "defaults": "published", "options": {"compare": "runs"}}
    runs = {"algorithm": grpo}
    with pytest.raises(
        ConfigurationError, match=r"rollouts\.runs_per_prompt must be at least 2 for GRPO"
    ) as refusal:
        check_params(Params.read({"training": runs}, where=""))

    assert 1 == len(str(refusal.value).splitlines())
    # One probe after each context is then enough.
    single = {"name": "tree", "options": {"tree_width": 1}}
    record = {"training": runs, "rollouts": {"runs_per_prompt": 2, "sampler": single}}
    check_params(Params.read(record, where=""))


def test_a_value_head_that_nobody_brings_is_refused():
    with pytest.raises(ConfigurationError, match="_Headless must bring the value head") as refusal:
        _check_choice(f"{__name__}:_Headless", {})

    assert 1 == len(str(refusal.value).splitlines())


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Model folders of two words-only models, and of one that reads bytes."""
    root = tmp_path_factory.mktemp("models")
    tiny_language_model(1).save(root / "words")
    tiny_language_model(2).save(root / "same_words")
    tiny_language_model(3, vocabulary=None).save(root / "bytes")
    return root


def test_a_teacher_of_another_tokenizer_is_refused_before_weights_load(folders):
    attacker = {"source": "folder", "path": str(folders / "words")}
    alike, other = ({**attacker, "path": str(folders / name)} for name in ("same_words", "bytes"))

    _check_choice("distillation", {"teacher": "target"}, attacker=attacker, target=attacker)
    _check_choice("distillation", {"teacher": "target"}, attacker=attacker, target=alike)
    _check_choice("distillation", {"teacher": "reference"}, attacker=attacker, target=other)
    with pytest.raises(ConfigurationError, match="target must share the attacker's") as refusal:
        _check_choice("distillation", {"teacher": "target"}, attacker=attacker, target=other)
    assert 1 == len(str(refusal.value).splitlines())


def test_a_folder_without_tokenizer_cannot_teach(folders, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    attacker = {"source": "folder", "path": str(folders / "words")}

    with pytest.raises(ConfigurationError, match="must hold a tokenizer"):
        _check_choice(
            "distillation",
            {"teacher": "target"},
            attacker=attacker,
            target={"source": "folder", "path": str(tmp_path)},
        )
