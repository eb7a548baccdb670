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
    from astra_core.models.lora import save_adapters
    from astra_core.models.pretrained import weights_digest
    from astra_core.training.driving import drive

    folder, checkpoints = place.target(number), place.file(f"checkpoints_{number}")
    if not folder.is_dir():
        trainer = _trainer(number, pairs, checkpoints, place=place)
        trainer.resume()
        with progress("hardening", total=trainer.config.training_steps) as advance:
            drive(trainer, lambda _: advance())
        with draft_folder_of(folder) as draft:
            own = trainer.sampler.system.attacker
            own.save(draft)
            if trainer.config.lora is not None:
                save_adapters(own.model, draft, base=weights_digest(place.target(0)))
    shutil.rmtree(checkpoints, ignore_errors=True)
    return folder


def _trainer(
    number: int, pairs: list[Pair], checkpoints: Path, *, place: HardeningPlace
) -> "Trainer":
    from astra_core.models.lora import read_adapters
    from astra_core.registry import build
    from astra_core.training.checkpoint import CheckpointStore
    from astra_core.training.trainer import Trainer
    from astra_parts.assembly import ModelFolders, load_system
    from tasks.serving.fine_tuning.rollouts import GivenSampler

    params, before = place.params, place.target(number - 1)
    config, seed = _training(params), params.training_seed
    # The adapters of all rounds are added to the first target's weights.
    beginning = before if config.lora is None else place.target(0)
    system = load_system(
        _as_attacker(params.system),
        ModelFolders(beginning, before, before),
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
    trainer = Trainer(config, sampler, algorithm, store=CheckpointStore(checkpoints, keep=2))
    if beginning != before:
        read_adapters(system.attacker.model, before)
    return trainer


def _training(params: Params) -> TrainingConfiguration:
    from tasks.serving.fine_tuning.training import on_examples

    own, alike = params.hardening, params.training
    found = on_examples(
        # What a pass takes is the machine's affair, as in the attacker's training.
        TrainingConfiguration(
            lora=own.lora,
            precision=alike.precision,
            gradient_checkpointing=alike.gradient_checkpointing,
        ),
        algorithm=AlgorithmChoice(name="dpo", options={"loss": _LOSS}),
        steps=own.training_steps,
        batch_size=alike.batch_size,
        lr=own.lr,
    )
    # A pair has a context of its own where an attacker's rows share one: in half passes it takes
    # no more memory than those.
    half = -(-alike.batch_size // 2)
    return found.model_copy(update={"batch_size": half, "gradient_accumulation_steps": 2})


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
    own = system.config.response
    answers = [target.spoken(text, own) for text in (pair.answer, pair.worse)]
    context = target.heard(pair.conversation, own).token_ids
    room = system.attacker.max_positions - max(map(len, answers))
    return context[-max(room, 1) :], answers
