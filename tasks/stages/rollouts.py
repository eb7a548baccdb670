"""Stage ``rollouts``: what the untrained attacker does, validated before it is accepted.

The rollouts are the first experience of training and the cheap place to catch a broken scorer.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from astra_core.config import (
    Choice,
    MachineConfiguration,
    RolloutsConfiguration,
    SystemConfiguration,
)
from astra_core.files import draft_folder_of, record_digest
from astra_core.rollout import Graph, Node, Prompt
from tasks.pipeline.precision import remember
from tasks.pipeline.stage import Dep, Metric, Out, Untracked, plain_sections, stage
from tasks.records.models import read_model_paths
from tasks.records.prompts import read_prompts
from tasks.records.reports import write_record
from tasks.records.rollout_report import RolloutsRecord
from tasks.records.rollouts import ROLLOUTS_FILE, rollout_tables, write_rollouts

if TYPE_CHECKING:
    from astra_core.system import System
    from tasks.expectations import ValidationReport


@dataclass(frozen=True, slots=True)
class RolloutsSummary:
    """What was collected."""

    num_prompts: int
    num_turns: int
    score_mean: float
    success_rate: float
    num_unjudged: int = 0
    advice: tuple[str, ...] = ()

    def summary(self) -> str:
        """One line."""
        unjudged = f"{self.num_unjudged} replies unjudged, " if self.num_unjudged else ""
        warned = f"; warning: {'; '.join(self.advice)}" if self.advice else ""
        return (
            f"{self.num_turns} turns from {self.num_prompts} prompts, "
            f"{self.success_rate:.1%} of turns succeed, {unjudged}data checks passed{warned}"
        )


@dataclass(frozen=True, slots=True)
class RolloutsParams:
    """What decides the rollouts."""

    training_seed: int
    machine: MachineConfiguration
    system: SystemConfiguration
    rollouts: RolloutsConfiguration
    reward: Choice
    # Who does the work, which is the same whoever does it.
    executor: Untracked[Choice]


@dataclass(frozen=True, slots=True)
class RolloutsFiles:
    """Prompts and models, and where the rollouts and their report go."""

    valid: Dep = Path("data/valid")
    base: Dep = Path("models/base")
    folder: Out = Path("data/rollouts")
    report: Metric = Path("reports/rollouts.json")


@stage(
    code=(
        "tasks/stages/rollouts.py",
        "tasks/pipeline/precision.py",
        "tasks/records/models.py",
        "tasks/records/prompt_table.py",
        "tasks/records/prompts.py",
        "tasks/records/rollout_report.py",
        "tasks/records/reports.py",
        "tasks/records/rollouts.py",
        "tasks/expectations",
        "astra_core/errors/excerpt.py",
        "astra_core/training/launch.py",
        "astra_core/agents.py",
        "astra_core/attacker_settings.py",
        "astra_core/assembly.py",
        "astra_core/engine",
        "astra_core/crew.py",
        "astra_core/executor.py",
        "astra_core/conversation.py",
        "astra_core/judge.py",
        "astra_core/judges",
        "astra_core/metadata.py",
        "astra_core/metrics",
        "astra_core/evaluator.py",
        "astra_core/models",
        "astra_core/reward.py",
        "astra_core/rewards",
        "astra_core/rollout.py",
        "astra_core/sampler.py",
        "astra_core/samplers",
        "astra_core/scorer.py",
        "astra_core/scorers",
        "astra_core/seeding.py",
        "astra_core/system.py",
        "astra_core/target.py",
        "astra_core/targets",
        "plugins",
    )
)
def collect_rollouts(
    params: RolloutsParams, files: RolloutsFiles = RolloutsFiles()
) -> RolloutsSummary:
    """Rolls the untrained attacker out on training prompts and checks what came of it.

    Raises:
        GateError: The rollouts are not fit to learn from; nothing is accepted.
    """
    from astra_core.assembly import ModelFolders, load_system

    prompts = read_prompts(files.valid / "train.parquet")
    folders = ModelFolders.of(read_model_paths(files.base))
    loaded = load_system(params.system, folders, machine=params.machine, executor=params.executor)
    with loaded.target.accounted(f"rollouts {record_digest(plain_sections(params))[:16]}"):
        graphs = _collected(params, prompts, loaded)
        used = dict(loaded.target.figures())
    with draft_folder_of(files.folder) as draft:
        num_turns = write_rollouts(graphs, draft / ROLLOUTS_FILE)
        if params.system.precision == "auto":
            remember(loaded.config, draft)
        validated = _validated(draft / ROLLOUTS_FILE, params.rollouts, loaded)
        if not validated.success:
            write_record({"checks": validated.to_record()}, files.report)
            validated.require_success(files.report)
    nodes = [node for graph in graphs for node in graph.nodes() if node.is_judged]
    summary = RolloutsSummary(
        num_prompts=len(graphs) // params.rollouts.runs_per_prompt,
        num_turns=num_turns,
        score_mean=_mean([node.score for node in nodes]),
        success_rate=_mean([float(node.score >= 0.5) for node in nodes]),
        num_unjudged=sum(
            score is None
            for graph in graphs
            for node in graph.nodes()
            for score in node.response_scores
        ),
        advice=tuple(validated.advice.values()),
    )
    written = _record(summary, nodes, system=loaded, validated=validated)
    write_record(replace(written, target=used or None), files.report)
    return summary


def _collected(
    params: RolloutsParams, prompts: Sequence[Prompt], system: "System"
) -> Sequence[Graph]:
    """The rewarded rollouts of as many prompts as are asked for and there are."""
    from astra_core.assembly import build_sampler
    from astra_core.reward import rewarded
    from astra_core.sampler import rolled_out

    sampler = build_sampler(
        params.rollouts, params.reward, system=system, prompts=prompts, seed=params.training_seed
    )
    chosen = sampler.runs(0, min(params.rollouts.num_prompts, len(prompts)))
    return rewarded(sampler.reward, rolled_out(sampler, chosen, iteration=0))


def _mean(values: Sequence[float]) -> float:
    """Of no value it is zero."""
    return sum(values) / max(len(values), 1)


def _record(
    summary: RolloutsSummary,
    nodes: Sequence[Node],
    *,
    system: "System",
    validated: "ValidationReport",
) -> RolloutsRecord:
    from astra_core.scorer import version_of

    return RolloutsRecord(
        **{name: value for name, value in asdict(summary).items() if name != "advice"},
        reward_mean=_mean([node.reward for node in nodes]),
        target_nll_mean=_mean([node.target_nll for node in nodes]),
        scorer=version_of(system.scorer),
        system_precision=system.config.precision,
        checks=validated.to_record(),
    )


def _validated(path: Path, rollouts: RolloutsConfiguration, system: "System") -> "ValidationReport":
    """The rollout suite held against the file as it was written."""
    from tasks.expectations.frames import validate_rollouts
    from tasks.expectations.speech import TokenLimits

    return validate_rollouts(
        (table.to_pandas() for table in rollout_tables(path)),
        max_failed_fraction=rollouts.max_failed_fraction,
        vocabulary_size=system.attacker.vocabulary_size,
        limits=TokenLimits(
            system.config.probe.max_new_tokens, system.config.response.max_new_tokens
        ),
    )
