"""The target learns from pairs, by the project's own Trainer; a killed training goes on."""

import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from astra_core.config import (
    AlgorithmChoice,
    AttackerConfiguration,
    Choice,
    SystemConfiguration,
    TrainingConfiguration,
)
from astra_core.files import draft_folder_of
from tasks.hardening.pairs import Pair
from tasks.hardening.places import HardeningPlace
from tasks.machine.console import progress
from tasks.params.schema import Params

if TYPE_CHECKING:
    from astra_core.system import System
    from astra_core.targets.causal_lm import CausalLM
    from astra_core.training.trainer import Trainer
    from tasks.serving.fine_tuning.rollouts import Turns

_LOSS = {"sigmoid": 1.0, "sft": 0.2}
"""Preferences alone may make both answers less likely; imitation beside them keeps it fluent."""


def train_target(number: int, pairs: list[Pair], place: HardeningPlace) -> Path:
    """The folder of the target that learned from these pairs, beginning with the one before."""
    from astra_core.training.driving import drive

    folder, checkpoints = place.target(number), place.file(f"checkpoints_{number}")
    if not folder.is_dir():
        trainer = _trainer(place.target(number - 1), pairs, checkpoints, params=place.params)
        trainer.resume()
        with progress("hardening", total=trainer.config.training_steps) as advance:
            drive(trainer, lambda _: advance())
        with draft_folder_of(folder) as draft:
            trainer.sampler.system.attacker.save(draft)
    shutil.rmtree(checkpoints, ignore_errors=True)
    return folder


def _trainer(before: Path, pairs: list[Pair], checkpoints: Path, *, params: Params) -> "Trainer":
    from astra_core.registry import build
    from astra_core.training.checkpoint import CheckpointStore
    from astra_core.training.trainer import Trainer
    from astra_parts.assembly import ModelFolders, load_system
    from tasks.serving.fine_tuning.rollouts import GivenSampler

    config, seed = _training(params), params.training_seed
    system = load_system(
        _as_attacker(params.system),
        ModelFolders(before, before, before),
        machine=params.machine,
        is_trained=True,
        seed=seed,
    )
    sampler = GivenSampler(
        system,
        [partial(_read, system, own) for own in pairs],
        seed=seed,
        num_passes=config.training_steps * config.batch_size,
    )
    algorithm = build("algorithm", config.algorithm, system=system)
    return Trainer(config, sampler, algorithm, store=CheckpointStore(checkpoints, keep=2))


def _training(params: Params) -> TrainingConfiguration:
    from tasks.serving.fine_tuning.training import on_examples

    own = params.hardening
    return on_examples(
        TrainingConfiguration(lora=own.lora),
        algorithm=AlgorithmChoice(name="dpo", options={"loss": _LOSS}),
        steps=own.training_steps,
        batch_size=params.training.batch_size,
        lr=own.lr,
    )


def _as_attacker(system: SystemConfiguration) -> SystemConfiguration:
    """The settings under which the target's model takes the place of the attacker's."""
    return system.model_copy(
        update={
            "attacker": AttackerConfiguration(),
            "roles": (),
            "agents": {},
            "probe": system.response,
            # Nothing is judged, and a judge may be a model of its own.
            "scorer": Choice(name="profanity"),
            "probe_scorer": None,
        }
    )


def _read(system: "System", pair: Pair) -> "Turns":
    """What the target reads, as in a rollout, and both answers as it would say them."""
    target = cast("CausalLM", system.target)
    answers = [target.format.written(text) for text in (pair.answer, pair.worse)]
    context = target.heard(pair.conversation, system.config.response).token_ids
    room = system.attacker.max_positions - max(map(len, answers))
    return context[-max(room, 1) :], answers
