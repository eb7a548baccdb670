"""Ready-made: from two Hugging Face folders and a list of prompts to a Trainer, in one call.

In the place of ASTRA-RL's ``HFASTConfiguration`` and ``HFASTTrainer``, with the same numbers.
Unlike there, the examination works and runs once when due, not per batch; only a better score
replaces the best model, saved with its tokenizer; windows accumulate; figures are reported.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from astra_core.config import (
    CheckpointConfiguration,
    Choice,
    EvaluationConfiguration,
    Section,
    SystemConfiguration,
    TrainingConfiguration,
)
from astra_core.evaluator import Evaluator
from astra_core.extensions.calls import plugin_call
from astra_core.models.folders import model_folder
from astra_core.registry import build, read_options, resolve
from astra_core.rollout import Prompt
from astra_core.system import System
from astra_core.training.checkpoint import CheckpointStore
from astra_core.training.trainer import Trainer


class Assembly(Section):
    """What surrounds the training itself; every part has the default of its own class."""

    system: SystemConfiguration = SystemConfiguration()
    sampler: Choice = Choice(name="tree")
    reward: Choice = Choice(name="adversarial")
    evaluation: EvaluationConfiguration = EvaluationConfiguration()
    device: str = Field(default="cpu", description="Where the models are, as torch names it.")
    seed: int = Field(default=0, description="The one root of all randomness.")


def hf_configuration(**changes: Any) -> TrainingConfiguration:
    """A configuration for models of GPT-2's size; a change is any field, as in params.yaml.

    Raises:
        ConfigurationError: A field is unknown or out of range.
    """
    numbers = {
        "lr": 1e-5,
        "batch_size": 4,
        "optimizer": {"name": "adamw"},
        "gradient_accumulation_steps": 1,
        "training_steps": 1000,
        "num_episodes_per_experience": 2,
        "eval_every": 200,
        "checkpoint": CheckpointConfiguration(save_every=50).model_dump(mode="json"),
    }
    return TrainingConfiguration.read({**numbers, **changes}, where="training")


def hf_trainer(
    attacker: Path | str,
    target: Path | str,
    prompts: Sequence[str],
    *,
    dev_prompts: Sequence[str],
    folder: Path | str,
    config: TrainingConfiguration | None = None,
    assembly: Assembly | None = None,
) -> Trainer:
    """A Trainer whose ``train()`` leaves the best attacker found in place.

    Args:
        attacker: Hugging Face folder, or ``hub:owner/name@revision`` for one of the hub, which is
            asked for nothing else; its frozen copy is the reference.
        target: Likewise; may be the attacker's.
        prompts: What opens the conversations that are learned from.
        dev_prompts: What opens those of the examination; the first ``num_training_prompts``.
        folder: Where checkpoints go; ``resume()`` goes on from the newest.
        config: None for ``hf_configuration()``; names algorithm, trainer, optimiser and schedule.
        assembly: None for the defaults.

    Raises:
        ConfigurationError: A folder, a name or an option cannot be used.
        DataError: There are no prompts.
    """
    config = config or hf_configuration()
    around = assembly or Assembly()
    trainer: type[Trainer] = resolve("trainer", config.trainer.name)
    sampler = read_options("sampler", around.sampler)
    given = resolve("sampler", around.sampler.name).gives | {"shared_tokenizer"}
    algorithm = resolve("algorithm", config.algorithm.name)
    algorithm.check_needs(read_options("algorithm", config.algorithm), sampler, gives=given)
    examined = _prompts(dev_prompts)[: around.evaluation.num_training_prompts]
    evaluator = Evaluator(
        around.evaluation, prompts=examined, reward=build("reward", around.reward), seed=around.seed
    )
    system = _system(model_folder(attacker), model_folder(target), around)
    rolling = build(
        "sampler",
        around.sampler,
        system=system,
        prompts=_prompts(prompts),
        reward=build("reward", around.reward),
        seed=around.seed,
    )
    learning = build("algorithm", config.algorithm, system=system)
    store = CheckpointStore(Path(folder), keep=config.checkpoint.keep)
    with plugin_call("trainer", config.trainer.name, "its construction"):
        return trainer(config, rolling, learning, evaluator=evaluator, store=store)


def _system(attacker: Path, target: Path, around: Assembly) -> System:
    system = System.load(
        around.system, attacker=attacker, target=target, reference=attacker, is_trained=True
    )
    for model in (system.attacker, system.target, system.reference):
        model.model.to(around.device)
    return system


def _prompts(texts: Sequence[str]) -> tuple[Prompt, ...]:
    return tuple(Prompt(hashlib.sha256(text.encode()).hexdigest()[:16], text) for text in texts)
