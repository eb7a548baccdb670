"""Every setting of training does something: changed alone, it changes what a run gives."""

import itertools
import json
import math

import pytest
from tiny_training import configured, trainer_of, weights_of

from astra_core.algorithms.dpo import DPO
from astra_core.config import (
    LoraConfiguration,
    Part,
    Section,
    TrainingConfiguration,
)
from astra_core.errors import TrainingError

PERIODIC = {"pattern": "mlp", "active": "periodic", "period": 3, "start": 1, "stop": 2}
KL = {"metric": "eval/kl_nats", "eval_every": 1}
STUCK = {"metric": "eval/failed_rate", "eval_every": 1, "training_steps": 4}


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
    "parts.stop": (part(), part(stop=3)),
    "lora.rank": (lora(), lora(rank=3)),
    "lora.alpha": (lora(), lora(alpha=1.0)),
    "lora.target_modules": (lora(), lora(target_modules=["v_proj"])),
    "kl.max_per_experience_nats": ({}, {"kl": {"max_per_experience_nats": 1e-6}}),
    "kl.target_per_experience_nats": ({}, {"kl": {"target_per_experience_nats": 1e-3}}),
    "early_stopping.min_delta": (KL, {**KL, "early_stopping": {"min_delta": 1e6}}),
    "dump_steps": ({}, {"dump_steps": [1]}),
}
"""What each setting is changed from and to."""

ELSEWHERE = {
    "algorithm": "training/test_trainer",
    "training_steps": "training/test_trainer",
    "num_episodes_per_experience": "training/test_trainer",
    "batch_size": "training/test_trainer",
    "epochs_per_experience": "training/test_trainer",
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
    "checkpoint.export": "tasks/pipeline/test_continuing",
    "checkpoint.resume": "training/resume/test_policy",
    "checkpoint.allow_other_version": "training/resume/test_policy",
    "max_nonfinite_steps": "test_training_settings",
    "sharding": "training/test_sharding",
    "staleness.max_versions": "training/test_ahead",
    "staleness.correction": "training/test_correction",
    "staleness.cap": "training/test_correction",
}


def leaves(section, prefix=""):
    """The dotted names of a section's settings; a plug-in's choice is one setting."""
    nested = {"parts": Part, "lora": LoraConfiguration}
    for name, field in section.model_fields.items():
        inner = nested.get(name, field.annotation)
        is_section = isinstance(inner, type) and issubclass(inner, Section)
        if is_section and inner.__name__ != "Choice":
            yield from leaves(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def outcome(folder, changes):
    """Everything that a setting may change."""
    trainer = trainer_of(configured(**changes), folder)
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


@pytest.mark.parametrize("name", EFFECTS)
def test_a_setting_changes_the_run(name, outcome_before, tmp_path):
    before, after = EFFECTS[name]

    assert outcome_before(before) != outcome(tmp_path / "after", after)


@pytest.mark.parametrize(("limit", "num_updates"), [(0, 0), (2, 2)])
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
