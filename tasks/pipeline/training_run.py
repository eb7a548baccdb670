"""The run of a training: what determines it, and the key under which it is found again."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from astra_core.files import file_digest, folder_digest, record_digest
from tasks.params.plugins import PLUGINS, is_source, source_digests
from tasks.pipeline.stage_code import ROOT, code_of
from tasks.records.models import Parent, read_manifest
from tasks.records.rollouts import ROLLOUTS_FILE

RUNS = Path("runs")
_STAGE = "tasks.stages.training"
# Only the evaluation stage uses them, after the training.
_ASKED_AFTER = frozenset(
    {
        "ask_prompts",
        "bandit_calls",
        "benign_prompts",
        "calibration",
        "num_examples",
        "num_prompts",
        "rarefied_to",
        "second_judge",
        "second_threshold",
        "strategy_calls",
        "transfer",
    }
)


@dataclass(frozen=True, slots=True)
class TrainingInputs:
    """What a training reads: the valid prompts, the base models and their first rollouts."""

    valid: Path
    base: Path
    baseline: Path


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """A training that can be found again.

    ``updates_key``: the same without what changes no update: the number of training steps, and what
    is written.
    """

    key: str
    updates_key: str
    sections: Mapping[str, Any]
    parent: Parent | None

    @classmethod
    def of(cls, sections: Mapping[str, Any], inputs: TrainingInputs) -> Self:
        """The run of these parameters, as JSON by section, and these inputs."""
        training = _without(sections["training"], {"require_signal"})
        # Whether it may begin, or the last state is exported, changes no update: the same run.
        checkpoint = _without(training["checkpoint"], {"export"})
        sections = {**sections, "evaluation": _without(sections["evaluation"], _ASKED_AFTER)}
        updates = _without(training, {"training_steps", "checkpoint"})
        return cls(
            run_key({**sections, "training": {**training, "checkpoint": checkpoint}}, inputs),
            updates_key=run_key({**sections, "training": updates}, inputs),
            sections=sections,
            parent=read_manifest(inputs.base).attacker.parent,
        )

    @property
    def folder(self) -> Path:
        """The folder of a run's checkpoints and journal, which a kill leaves behind."""
        return RUNS / self.key[:16]


def run_key(sections: Mapping[str, Any], inputs: TrainingInputs) -> str:
    """The name of a run; equal parameters, inputs and code resume it."""
    digests = [
        file_digest(inputs.valid / "train.parquet"),
        file_digest(inputs.valid / "dev.parquet"),
        file_digest(inputs.baseline / ROLLOUTS_FILE),
        read_manifest(inputs.base).digests(),
    ]
    return record_digest([dict(sections), digests, code_digests(sections)])


def code_digests(sections: Mapping[str, Any]) -> list[Any]:
    """The digests of the code that decides a training's result.

    That of plug-ins too: after an edit, training must start over, not export the old result.
    """
    paths = (path for path in code_of(_STAGE, tuple(sections)) if path != PLUGINS.as_posix())
    return [
        {path: _code_digest(ROOT / path) for path in paths},
        folder_digest(PLUGINS, keep=is_source),
        source_digests(sections),
    ]


def _code_digest(path: Path) -> str:
    return folder_digest(path, keep=is_source) if path.is_dir() else file_digest(path)


def _without(section: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in section.items() if name not in names}
