"""A preset: from two Hugging Face folders and a list of prompts to a Trainer, in one call.

It replaces ASTRA-RL's ``HFASTConfiguration`` and ``HFASTTrainer``, with the same numbers. Unlike
there, the evaluation works and runs once when due, not per batch; only a better score replaces the
best model, which is saved with its tokenizer; gradients accumulate; figures are reported.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from astra_core.config import (
    CheckpointConfiguration,
    Choice,
    Count,
    EvaluationConfiguration,
    MachineConfiguration,
    RolloutsConfiguration,
    Section,
    SystemConfiguration,
    TrainingConfiguration,
)
from astra_core.errors import ConfigurationError
from astra_core.evaluator import Evaluator
from astra_core.models.folders import model_folder
from astra_core.registry import find
from astra_core.rollout import Prompt, prompts_of
from astra_core.training.checkpoint import CheckpointStore
from astra_core.training.selection.evaluation_scheme import check_schedule
from astra_core.training.trainer import Trainer
from astra_parts.assembly import (
    ModelFolders,
    build_evaluator,
    build_sampler,
    build_trainer,
    load_system,
)


class Assembly(Section):
    """The parts around the training itself; every part has the default of its own class."""

    system: SystemConfiguration = SystemConfiguration()
    sampler: Choice = Choice(name="tree")
    runs_per_prompt: Count = Field(1, description="As in rollouts of params.yaml.")
    reward: Choice = Choice(name="adversarial")
    evaluation: EvaluationConfiguration = EvaluationConfiguration()
    device: Literal["auto", "cpu", "cuda"] = Field(
        "cpu", description="Where the models are; auto takes CUDA where there is a device."
    )
    num_threads: int = Field(0, ge=0, description="Of torch; 0 chooses by model size.")
    seed: int = Field(0, description="The one root of all randomness.")


def hf_configuration(**changes: Any) -> TrainingConfiguration:
    """A configuration for models of GPT-2's size; a change is any field, as in params.yaml.

    Raises ConfigurationError if a field is unknown or out of range.
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
    attacker: Path | str = "",
    target: Path | str = "",
    prompts: Sequence[str | Prompt] = (),
    *,
    dev_prompts: Sequence[str | Prompt] = (),
    folder: Path | str = "",
    config: TrainingConfiguration | None = None,
    assembly: Assembly | None = None,
    **theirs: Any,
) -> Trainer:
    """A Trainer whose ``train()`` leaves the best attacker found in place.

    Args:
        attacker: Hugging Face folder, or ``hub:owner/name@revision`` for one of the hub, which is
            asked for nothing else; its frozen copy is the reference.
        target: Likewise; may be the attacker's.
        prompts: Open the conversations that are learned from; a ``Prompt`` may have metadata.
        dev_prompts: Open the conversations of the evaluation; the first ``num_training_prompts``.
            None are needed with ``training.evaluate: none``.
        folder: Where checkpoints go; ``resume()`` continues from the newest.
        config: None for ``hf_configuration()``; names algorithm, trainer, optimiser and schedule.
        assembly: None for the defaults.
        theirs: ASTRA-RL's ``eval_every`` and ``ckpt_dir``: ``config.eval_every`` and ``folder``.

    Raises:
        ConfigurationError: A folder, a name or an option cannot be used.
        DataError: There are no prompts.
    """
    config, folder = _in_our_words(config or hf_configuration(), folder, theirs)
    if not (attacker and target):
        msg = (
            "hf_trainer must get an attacker, a target and prompts, got no "
            f"{'target' if attacker else 'attacker'}; name the folder of each"
        )
        raise ConfigurationError(msg)
    around = assembly or Assembly()
    _check_needs(config, around)
    check_schedule(config, find("trainer", config.trainer).plugin)
    is_examined = config.evaluate != "none" or bool(dev_prompts)
    evaluator = _evaluator(around, dev_prompts) if is_examined else None
    openers, first = prompts_of(prompts), model_folder(attacker)
    system = load_system(
        around.system,
        ModelFolders(attacker=first, target=model_folder(target), reference=first),
        machine=MachineConfiguration(device=around.device, num_threads=around.num_threads),
        is_trained=True,
    )
    sampler = build_sampler(
        RolloutsConfiguration(sampler=around.sampler, runs_per_prompt=around.runs_per_prompt),
        around.reward,
        system=system,
        prompts=openers,
        seed=around.seed,
    )
    store = CheckpointStore(folder, keep=config.checkpoint.keep)
    return build_trainer(config, sampler, evaluator=evaluator, store=store)


def _evaluator(around: Assembly, dev_prompts: Sequence[str | Prompt]) -> Evaluator:
    examined = prompts_of(dev_prompts)[: around.evaluation.num_training_prompts]
    return build_evaluator(around.evaluation, around.reward, prompts=examined, seed=around.seed)


# Keywords of ASTRA-RL's trainer that have another place here.
_PLACES = {
    "environment": "give it attacker, target and prompts, and name the sampler in "
    "assembly=Assembly(sampler=...); built parts go to Trainer(config, sampler, algorithm)",
    "sampler": "name it in assembly=Assembly(sampler=...)",
    "algorithm": "name it in config=hf_configuration(algorithm=...)",
    "optimizer": "name it in config=hf_configuration(optimizer=...)",
    "training_steps": "give it to config=hf_configuration(training_steps=...)",
}


def _in_our_words(
    config: TrainingConfiguration, folder: Path | str, theirs: dict[str, Any]
) -> tuple[TrainingConfiguration, Path]:
    """Configuration and folder, after keywords from ASTRA-RL are translated."""
    known = {"eval_every", "ckpt_dir"}
    # The one that says most comes first.
    for name in sorted(theirs.keys() - known, key=lambda name: (name != "environment", name)):
        place = _PLACES.get(name, f"known are {sorted(known | {'config', 'assembly', 'folder'})}")
        msg = f"hf_trainer must get keywords that it knows, got {name}=; {place}"
        raise ConfigurationError(msg)
    if bool(folder) == bool(theirs.get("ckpt_dir")):
        got = "both" if folder else "none"
        msg = f"hf_trainer must get one folder, or ckpt_dir, for its checkpoints, got {got}"
        raise ConfigurationError(msg)
    if "eval_every" in theirs:
        # A configuration derived from ours may have its own constructor.
        only = {"eval_every": theirs["eval_every"]}
        TrainingConfiguration.read(only, where="training")
        config = config.model_copy(update=only)
    return config, Path(folder or theirs["ckpt_dir"])


def _check_needs(config: TrainingConfiguration, around: Assembly) -> None:
    """Checks that the plug-ins exist and the sampler gives what the algorithm needs."""
    sampler, algorithm = find("sampler", around.sampler), find("algorithm", config.algorithm)
    given = sampler.plugin.gives | {"shared_tokenizer"}
    given |= {"runs"} if around.runs_per_prompt > 1 else set()
    algorithm.plugin.check_needs(algorithm.options, sampler.options, gives=given)
