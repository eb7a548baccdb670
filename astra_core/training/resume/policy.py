"""What a run may resume: the policy for a changed version, algorithm or configuration.

A resumed run must end where an uninterrupted one would have. So a field may differ from the
checkpoint's when the updates that are done would have been the same under it:

=================================  =============  ==============================================
field                              may it differ  why
=================================  =============  ==============================================
training_steps                     yes            done updates stay; a schedule that reads it
                                                  follows the new length from here on; an
                                                  evaluation that was made only because the run
                                                  ended is taken back
early_stopping.*, max_nonfinite_*  yes            they say when to end, not what to learn; a run
                                                  that a budget ended in mid-experience resumes
                                                  from that experience's start
checkpoint.*, dump_steps           yes            they say what is written
evaluate, eval_every, eval_first   yes            they say when to look; not under a schedule
                                                  that follows a figure of the evaluations
require_signal                     yes            it says whether to begin
keep                               yes            it says what is taken from the run in the end
gradient_checkpointing, sharding   yes            the same numbers with other memory
precision, lr, optimizer, parts,   no             the updates that are done would be others
schedule, batch sizes, lora, ...
algorithm                          no             its state would be read by another
metric, mode                       no             the best so far was chosen by the other one
early_stopping.min_delta           no             likewise
=================================  =============  ==============================================

Between package versions, a patch or minor difference resumes; a major one is refused unless
``training.checkpoint.allow_other_version`` is set. There is never a question to answer.
"""

import re
from collections.abc import Mapping, Set as AbstractSet
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from astra_core.config import TrainingConfiguration
from astra_core.engine.products.precision import faster_precision, of_device
from astra_core.errors import CheckpointError, ConfigurationError
from astra_core.training.checkpoint import Checkpoint, CheckpointStore, load_checkpoint
from astra_core.training.distribution.distributed import World
from astra_core.training.progress import Progress
from astra_core.training.selection.stopping import Best

_PACKAGE = "astra-red-team"
_FREE = re.compile(
    r"training_steps|max_nonfinite_steps|evaluate|eval_every|eval_first|keep"
    r"|gradient_checkpointing|sharding|require_signal|dump_steps(\..*)?|checkpoint\..*|early_stopping\.(?!min_delta).*"
)

# They decide what is learned where a schedule follows a figure of the evaluations.
EVALUATION_FIELDS = frozenset({"evaluate", "eval_every", "eval_first"})


@cache
def package_version() -> str | None:
    """The installed version of this package; None where it is not installed."""
    try:
        return version(_PACKAGE)
    except PackageNotFoundError:
        return None


def has_same_major(first: str | None, second: str | None) -> bool:
    """Whether two versions, None where one is unknown, differ in a minor or patch at most."""
    own, other = ((each or "").partition(".")[0] for each in (first, second))
    return own == other


def changed_fields(stored: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Every field that differs, by its dotted name, as (stored, own).

    A field that the stored configuration lacks counts as its default.
    """
    default = _flat(TrainingConfiguration().model_dump(mode="json"))
    before, now = {**default, **_flat(stored)}, _flat(own)
    return {
        name: (before.get(name), now.get(name))
        for name in sorted({*before, *now})
        if before.get(name) != now.get(name)
    }


def check_resumable(
    record: Mapping[str, Any],
    own: Mapping[str, Any],
    *,
    subject: str,
    held: AbstractSet[str] = frozenset(),
) -> dict[str, tuple[Any, Any]]:
    """The fields that differ, if all of them may.

    Args:
        own: ``config``, ``algorithm``, ``version`` and more of the run that wants to resume.
        held: Fields that may not differ in this run, although they may in others.

    Raises CheckpointError if algorithm, version, seed or a field that must be equal differs.
    """
    if record.get("algorithm") != own["algorithm"]:
        msg = (
            f"{subject} was written by {record.get('algorithm')} and cannot resume "
            f"{own['algorithm']}; start a new run or restore training.algorithm.name"
        )
        raise CheckpointError(msg)
    is_same = has_same_major(record.get("version"), own["version"])
    if not (is_same or own["config"]["checkpoint"]["allow_other_version"]):
        msg = (
            f"{subject} must be of the same major version as {own['version']}, got "
            f"{record.get('version')}; start a new run or set "
            "training.checkpoint.allow_other_version"
        )
        raise CheckpointError(msg)
    for name in ("seed", "system"):
        if record.get(name) != own[name]:
            msg = (
                f"{subject} must have {name} {own[name]}, got {record.get(name)}; "
                "start a new run or restore it"
            )
            raise CheckpointError(msg)
    return _permit(changed_fields(record["config"], own["config"]), subject, held)


def as_begun(
    config: TrainingConfiguration, model: Any, *, store: CheckpointStore | None, world: World
) -> TrainingConfiguration:
    """The configuration with a precision: for ``auto`` that of the run that it resumes.

    A new run takes the faster one, the same in every process; a new trial in a resumed run could
    decide differently.

    Raises CheckpointError if ``config.checkpoint.resume`` names something that cannot be resumed;
    ConfigurationError if there are dumps to write, and no store to write them to.
    """
    if config.dump_steps and store is None:
        msg = "training.dump_steps must be empty without a store; give the Trainer one"
        raise ConfigurationError(msg)
    if config.precision != "auto":
        own = of_device(config.precision, model.device.type)
        return config.model_copy(update={"precision": own})
    resume = config.checkpoint.resume
    found = None if resume == "never" else starting_point(store, resume)
    if found is not None:
        precision = found[0].record["config"]["precision"]
    else:
        precision = world.first_says(faster_precision(model, is_trained=True))
    return config.model_copy(update={"precision": precision})


def starting_point(store: CheckpointStore | None, resume: str) -> tuple[Checkpoint, Path] | None:
    """The checkpoint a run resumes from, and its folder; None to start from scratch.

    A run's own checkpoints come before the folder it starts from, so that a killed run can resume.

    Raises CheckpointError if the folder in ``resume`` has none, or all are damaged.
    """
    if resume == "never":
        if store is not None:
            store.clear()
        return None
    own = store.newest() if store is not None else None
    if store is not None and own is not None:
        return own, store.folder
    if resume == "auto":
        return None
    return _checkpoint_at(Path(resume))


def whole_before(checkpoint: Checkpoint, folder: Path) -> Checkpoint:
    """The newest checkpoint in the folder that a longer run would have had too.

    Raises CheckpointError if there is none, or all are damaged.
    """
    found = CheckpointStore(folder).newest(is_whole=True)
    if found is None:
        msg = (
            f"checkpoint {folder / checkpoint.name} must have a whole one beside it to resume, "
            "got none; start a new run or restore training.early_stopping"
        )
        raise CheckpointError(msg)
    return found


def forget_last_look(progress: Progress, best: Best, config: TrainingConfiguration) -> None:
    """Removes the evaluation that a run made because it ended, not because it was due.

    A longer run would not have made it, and might export another checkpoint.
    """
    points, done = progress.evaluations, progress.training_step
    is_due = config.evaluate == "every" and not done % config.eval_every
    is_of_now = bool(points) and (points[-1].step, points[-1].training_step) == (
        progress.step,
        done,
    )
    if is_of_now and best.before is not None and (progress.is_partial or not is_due):
        points.pop()
        best.forget_last()


def _checkpoint_at(path: Path) -> tuple[Checkpoint, Path]:
    if (path / "manifest.json").is_file():
        return load_checkpoint(path), path.parent
    for folder in (path, path / "checkpoints"):
        found = CheckpointStore(folder).newest()
        if found is not None:
            return found, folder
    msg = (
        f"training.checkpoint.resume must name a folder with a checkpoint, got '{path}'; "
        "auto resumes where this run stopped"
    )
    raise CheckpointError(msg)


def _permit(
    changed: dict[str, tuple[Any, Any]], subject: str, held: AbstractSet[str]
) -> dict[str, tuple[Any, Any]]:
    refused = [name for name in changed if name in held or not _FREE.fullmatch(name)]
    if refused:
        before, now = ([changed[name][index] for name in refused] for index in (0, 1))
        msg = (
            f"{subject} must be resumed with training.{refused} as they were, {before}, got {now}; "
            "start a new run or restore them"
        )
        raise CheckpointError(msg)
    return changed


def _flat(record: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in record.items():
        if isinstance(value, Mapping) and value:
            found |= _flat(value, f"{prefix}{key}.")
        elif not isinstance(value, Mapping):
            found[f"{prefix}{key}"] = value
    return found
