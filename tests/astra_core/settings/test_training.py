"""Every setting of training does something: changed alone, it changes what a run gives."""

import itertools
import json
import math
from typing import ClassVar

import pytest
from each_row import each_row
from tiny_training import configured, trainer_of, weights_of

from astra_core.algorithms.dpo import DPO
from astra_core.config import (
    AlgorithmChoice,
    Choice,
    LoraConfiguration,
    Part,
    Section,
    TrainingConfiguration,
)
from astra_core.errors import ConfigurationError, TrainingError
from astra_core.registry import BUILT_INS, build, find, resolve
from astra_core.samplers.tree import TreeSampler
from astra_parts.algorithms.grpo import GRPO
from astra_parts.testing import tiny_system

PERIODIC = {"pattern": "mlp", "active": "periodic", "period": 3, "start": 1, "stop": 2}
KL = {"metric": "eval/kl_nats", "eval_every": 1}


def part(**changes):
    return {"parts": {"mlp": {**PERIODIC, **changes}}}


def lora(**changes):
    return {"lora": {"rank": 2, "alpha": 4.0, "target_modules": ["q_proj"], **changes}}


EFFECTS = {
    "gradient_accumulation_steps": ({}, {"gradient_accumulation_steps": 2}),
    "shuffle": ({"batch_size": 2}, {"batch_size": 2, "shuffle": "steps"}),
    "parts.pattern": (part(), part(pattern="attn")),
    "parts.lr_factor": (part(), part(lr_factor=0.5)),
    "parts.active": (part(), part(active="always")),
    "parts.period": ({**part(), "training_steps": 4}, {**part(period=2), "training_steps": 4}),
    "parts.start": (part(), part(start=0)),
    "parts.stop": ({**part(), "training_steps": 3}, {**part(stop=3), "training_steps": 3}),
    "lora.rank": (lora(), lora(rank=3)),
    "lora.alpha": (lora(), lora(alpha=1.0)),
    "lora.target_modules": (lora(), lora(target_modules=["v_proj"])),
    "kl.max_per_experience_nats": ({}, {"kl": {"max_per_experience_nats": 1e-6}}),
    "early_stopping.min_delta": (KL, {**KL, "early_stopping": {"min_delta": 1e6}}),
    "dump_steps": ({}, {"dump_steps": [1]}),
    "algorithm.defaults": (
        {"algorithm": {"name": "grpo"}},
        {"algorithm": {"name": "grpo", "defaults": "turns"}},
    ),
}
"""What each setting is changed from and to."""

ELSEWHERE = {
    "algorithm": "training/test_trainer",
    "training_steps": "training/test_trainer",
    "num_episodes_per_experience": "training/test_trainer",
    "batch_size": "training/test_trainer",
    "epochs_per_experience": "training/test_trainer",
    "max_update_share": "training/test_trainer",
    "lr": "training/test_trainer",
    "optimizer": "training/test_trainer",
    "schedule": "training/test_trainer",
    "warmup_steps": "training/test_trainer",
    "max_grad_norm": "training/test_trainer",
    "precision": "training/test_trainer",
    "eval_every": "training/test_trainer",
    "metric": "training/test_trainer",
    "mode": "training/test_trainer",
    "early_stopping.patience": "training/test_trainer",
    "early_stopping.max_kl_nats": "training/test_trainer",
    "early_stopping.max_optimizer_steps": "training/test_trainer",
    "early_stopping.max_seconds": "training/test_trainer",
    "checkpoint.save_every": "training/test_trainer",
    "checkpoint.keep": "training/test_trainer",
    "evaluate": "training/test_evaluation_scheme",
    "keep": "training/test_evaluation_scheme",
    "eval_first": "training/test_evaluation_scheme",
    "trainer": "test_extending",
    "agents": "training/test_learner",
    "kl.warn_per_experience_nats": "training/test_progress",
    "gradient_checkpointing": "models/test_recomputation",
    "compile": "engine/test_compilation",
    "checkpoint.export": "tasks/pipeline/test_continuing",
    "checkpoint.resume": "training/resume/test_policy",
    "checkpoint.allow_other_version": "training/resume/test_policy",
    "max_nonfinite_steps": "test_training_settings",
    "require_signal": "tasks/stages/test_training",
    "sharding": "training/test_sharding",
    "staleness.max_versions": "training/test_ahead",
    "staleness.correction": "training/test_correction",
    "staleness.cap": "training/test_correction",
}


def leaves(section, prefix=""):
    """The dotted names of a section's settings; name and options of a plug-in are one setting."""
    nested = {"parts": Part, "lora": LoraConfiguration}
    for name, field in section.model_fields.items():
        inner = nested.get(name, field.annotation)
        is_section = isinstance(inner, type) and issubclass(inner, Section)
        if is_section and issubclass(inner, Choice):
            yield f"{prefix}{name}"
            more = inner.model_fields.keys() - Choice.model_fields.keys()
            yield from (f"{prefix}{name}.{key}" for key in more)
        elif is_section:
            yield from leaves(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


class Repeating(TreeSampler):
    """Says after a prompt what it said in the first run: settings of training are looked at."""

    said: ClassVar = {}

    def roll_out(self, prompts, *, iteration):
        del iteration
        key = tuple(prompt.prompt_id for prompt in prompts)
        if key not in self.said:
            self.said[key] = super().roll_out(prompts, iteration=0)
        return self.said[key]


def outcome(folder, changes):
    """Everything that a setting may change."""
    config = configured(**{"training_steps": 2, **changes})
    trainer = trainer_of(config, folder, sampler=Repeating, is_evaluated="metric" in changes)
    rows = [report.row() for report in trainer.steps()]
    return {
        "rows": rows,
        "weights": weights_of(trainer),
        "evaluated": [point.training_step for point in trainer.progress.evaluations],
        "kept": sorted(path.relative_to(folder).as_posix() for path in folder.glob("**/*")),
        "best": (trainer.best.metric, trainer.best.training_step),
        "stopped": trainer.progress.stopped_because,
    }


def test_every_setting_is_in_the_table():
    assert sorted([*EFFECTS, *ELSEWHERE]) == sorted(leaves(TrainingConfiguration))


@pytest.fixture(scope="module")
def outcome_before(tmp_path_factory):
    """The outcome that others are compared with: many settings are changed from the same ones."""
    found = {}

    def once(changes):
        key = json.dumps(changes, sort_keys=True)
        if key not in found:
            found[key] = outcome(tmp_path_factory.mktemp("before"), changes)
        return found[key]

    return once


@pytest.mark.real
@each_row("name", EFFECTS)
def test_a_setting_changes_the_run(name, outcome_before, tmp_path):
    before, after = EFFECTS[name]

    assert outcome_before(before) != outcome(tmp_path / "after", after)


@each_row(("limit", "num_updates"), [(0, 0), (2, 2)])
def test_max_nonfinite_steps_says_how_many_updates_may_be_skipped(limit, num_updates):
    class Torn(DPO):
        """Its loss is never finite."""

        def step(self, batch):
            loss, logs = super().step(batch)
            return loss * math.nan, logs

    trainer = trainer_of(configured(max_nonfinite_steps=limit), algorithm=Torn)
    reports = trainer.steps()
    assert all(report.is_skipped for report in itertools.islice(reports, num_updates))

    with pytest.raises(TrainingError, match="max_nonfinite_steps"):
        next(reports)


OF_TURNS = {
    "dpo": {"backup": "mean", "turn_weights": "visits", "beta": 0.2, "margin": 0.3, "pairs": "all"},
    "grpo": {
        "turn_weights": "visits",
        "scale": "none",
        "surrogate": "cispo",
        "kl": "reward",
        "kl_estimator": "k1",
        "kl_coefficient": 0.02,
    },
    "ppo": {
        "decay": 1.0,
        "turn_weights": "visits",
        "final_turn": "terminated",
        "surrogate": "cispo",
        "kl_coefficient": 0.02,
    },
}


@each_row("name", sorted(BUILT_INS["algorithm"]))
def test_defaults_for_turns_are_those_of_the_class_and_differ_from_the_published(name):
    published = find("algorithm", AlgorithmChoice(name=name)).options.model_dump()
    of_turns = find("algorithm", AlgorithmChoice(name=name, defaults="turns")).options.model_dump()

    assert published == resolve("algorithm", name).Options().model_dump()
    assert OF_TURNS.get(name, {}) == {
        key: value for key, value in of_turns.items() if value != published[key]
    }


def test_an_option_that_is_given_comes_before_either_default():
    given = {"beta": 0.7, "backup": "none"}
    found = find("algorithm", AlgorithmChoice(name="dpo", defaults="turns", options=given)).options

    assert (0.7, "none", "visits") == (found.beta, found.backup, found.turn_weights)


def test_an_option_that_does_not_go_with_the_defaults_for_turns_is_refused_in_one_line():
    choice = AlgorithmChoice(name="dpo", defaults="turns", options={"loss": "aot"})

    with pytest.raises(ConfigurationError, match="turn_weights") as refused:
        find("algorithm", choice)
    assert str(refused.value).endswith(
        "'visits', 'beta': 0.2, 'margin': 0.3, 'pairs': 'all'}: set 'defaults: published'"
    )
    assert 1 == len(str(refused.value).splitlines())
    with pytest.raises(ConfigurationError, match="is not a known key") as refused:
        find("algorithm", choice.model_copy(update={"options": {"betta": 1.0}}))
    assert "published" not in str(refused.value)


def test_a_plain_choice_is_an_algorithm_with_published_defaults():
    config = TrainingConfiguration(algorithm=Choice(name="grpo", options={"scale": "none"}))

    expected = AlgorithmChoice(name="grpo", options={"scale": "none"}, defaults="published")
    assert expected == config.algorithm
    built = build("algorithm", config.algorithm, system=tiny_system())
    assert ("none", "equal") == (built.options.scale, built.options.turn_weights)


class OwnOptions(DPO):
    class Options(Section):
        beta: float = 0.5


class OwnBeta(DPO):
    class Options(DPO.Options):
        beta: float = 0.5


class OwnSet(DPO):
    options_for_turns: ClassVar = {"betta": 1.0}


def test_a_derived_class_keeps_the_defaults_that_it_has_changed():
    choice = AlgorithmChoice(name="own", defaults="turns")

    assert {} == choice.options_for(OwnOptions)
    kept = {"backup": "mean", "turn_weights": "visits", "margin": 0.3, "pairs": "all"}
    assert kept == choice.options_for(OwnBeta)
    # Its own set is not sifted: a wrong key is refused like any other.
    assert {"betta": 1.0} == choice.options_for(OwnSet)


@each_row(
    ("given", "gone"),
    [
        ({"kl": "loss"}, "kl_estimator"),
        ({"kl": "none"}, "kl_coefficient"),
        ({"clip_high": 0.28}, "surrogate"),
    ],
)
def test_a_default_goes_with_the_option_that_it_was_chosen_with(given, gone):
    choice = AlgorithmChoice(name="grpo", defaults="turns", options=given)
    found = choice.options_for(GRPO)

    assert gone in GRPO.options_for_turns
    assert gone not in found
    assert gone in AlgorithmChoice(name="grpo", defaults="turns").options_for(GRPO)
