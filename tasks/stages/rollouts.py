"""Stage ``rollouts``: what the untrained attacker does, validated before it is accepted.

The rollouts are the first experience of training and the cheap place to catch a broken scorer.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from astra_core.config import (
    Choice,
    MachineConfiguration,
    RolloutsConfiguration,
    SystemConfiguration,
)
from astra_core.files import draft_folder_of, write_json
from tasks.pipeline.precision import remember
from tasks.pipeline.stage import Dep, Metric, Out, stage
from tasks.records.tables import (
    ROLLOUTS_FILE,
    finite,
    read_model_paths,
    read_prompts,
    rollout_tables,
    write_rollouts,
)

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

    def summary(self) -> str:
        """One line."""
        return (
            f"{self.num_turns} turns from {self.num_prompts} prompts, "
            f"{self.success_rate:.1%} of turns succeed, data checks passed"
        )


@stage(
    code=(
        "tasks/stages/rollouts.py",
        "tasks/pipeline/precision.py",
        "tasks/records/tables.py",
        "tasks/expectations",
        "astra_core/errors/excerpt.py",
        "astra_core/training/launch.py",
        "astra_core/assembly.py",
        "astra_core/engine",
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
        "plugins",
    )
)
def collect_rollouts(
    training_seed: int,
    machine: MachineConfiguration,
    system: SystemConfiguration,
    rollouts: RolloutsConfiguration,
    reward: Choice,
    *,
    valid: Dep = Path("data/valid"),
    base: Dep = Path("models/base"),
    folder: Out = Path("data/rollouts"),
    report: Metric = Path("reports/rollouts.json"),
) -> RolloutsSummary:
    """Rolls the untrained attacker out on training prompts and checks what came of it.

    Raises:
        GateError: The rollouts are not fit to learn from; nothing is accepted.
    """
    from astra_core.assembly import ModelFolders, build_sampler, load_system
    from astra_core.reward import rewarded
    from astra_core.sampler import rolled_out
    from astra_core.scorer import version_of

    prompts = read_prompts(valid / "train.parquet")
    loaded = load_system(system, ModelFolders.of(read_model_paths(base)), machine=machine)
    sampler = build_sampler(rollouts, reward, system=loaded, prompts=prompts, seed=training_seed)
    chosen = sampler.episodes(0, min(rollouts.num_prompts, len(prompts)))
    graphs = rewarded(sampler.reward, rolled_out(sampler, chosen, iteration=0))
    with draft_folder_of(folder) as draft:
        num_turns = write_rollouts(graphs, draft / ROLLOUTS_FILE)
        if system.precision == "auto":
            remember(loaded.config, draft)
        validated = _validated(draft / ROLLOUTS_FILE, rollouts, loaded)
        if not validated.success:
            write_json(finite({"checks": validated.to_record()}), report)
            validated.require_success(report)
    nodes = [node for graph in graphs for node in graph.nodes() if not node.has_failed]
    summary = RolloutsSummary(
        num_prompts=len(graphs),
        num_turns=num_turns,
        score_mean=sum(node.score for node in nodes) / max(len(nodes), 1),
        success_rate=sum(node.score >= 0.5 for node in nodes) / max(len(nodes), 1),
    )
    record = {
        "num_prompts": summary.num_prompts,
        "num_turns": summary.num_turns,
        "score_mean": summary.score_mean,
        "success_rate": summary.success_rate,
        "reward_mean": sum(node.reward for node in nodes) / max(len(nodes), 1),
        "target_nll_mean": sum(node.target_nll for node in nodes) / max(len(nodes), 1),
        "scorer": version_of(loaded.scorer),
        "system_precision": loaded.config.precision,
        "checks": validated.to_record(),
    }
    write_json(finite(record), report)
    return summary


def _validated(path: Path, rollouts: RolloutsConfiguration, system: "System") -> "ValidationReport":
    """The rollout suite held against the file as it was written."""
    from tasks.expectations.frames import validate_rollouts

    return validate_rollouts(
        (table.to_pandas() for table in rollout_tables(path)),
        max_failed_fraction=rollouts.max_failed_fraction,
        vocabulary_size=system.attacker.vocabulary_size,
    )
