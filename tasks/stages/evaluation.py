"""Stage ``evaluation``: the trained attacker beside the untrained one, on the same prompts."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from astra_core.config import (
    Choice,
    EvaluationConfiguration,
    MachineConfiguration,
    SystemConfiguration,
)
from astra_core.files import draft_folder_of, record_digest, write_json, write_text
from astra_core.rollout import Prompt
from tasks.params.schema import Params
from tasks.pipeline.precision import remembered
from tasks.pipeline.stage import Dep, Metric, Out, stage
from tasks.records.tables import (
    finite,
    read_model_paths,
    read_prompts,
    write_prompt_table,
    write_rollouts,
)
from tasks.reporting.examples import examples_page

if TYPE_CHECKING:
    import pandas as pd

    from astra_core.evaluator import Evaluation
    from astra_core.metrics.statistics import Interval


@dataclass(frozen=True, slots=True)
class EvaluationReport:
    """Attack success of both attackers, and the gain."""

    attacker: "Interval"
    baseline: "Interval"
    lift: "Interval"
    unique_probes: float
    num_prompts: int

    def summary(self) -> str:
        """One line."""
        return (
            f"attack success {_spelled(self.baseline)} -> {_spelled(self.attacker)} "
            f"on {self.num_prompts} dev prompts, unique probes {self.unique_probes:.2f}"
        )


@stage(
    code=(
        "tasks/stages/evaluation.py",
        "tasks/pipeline/precision.py",
        "tasks/reporting/examples.py",
        "tasks/records/tables.py",
        "astra_core/assembly.py",
        "astra_core/evaluator.py",
        "astra_core/errors/excerpt.py",
        "astra_core/training/launch.py",
        "astra_core/metrics",
        "astra_core/engine",
        "astra_core/models",
        "astra_core/redaction.py",
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
def evaluate_attacker(
    training_seed: int,
    machine: MachineConfiguration,
    system: SystemConfiguration,
    reward: Choice,
    evaluation: EvaluationConfiguration,
    *,
    valid: Dep = Path("data/valid"),
    base: Dep = Path("models/base"),
    attacker: Dep = Path("models/attacker"),
    report: Metric = Path("reports/evaluation.json"),
    table: Out = Path("reports/evaluation_prompts.parquet"),
    examples: Out = Path("reports/examples.md"),
    evidence: Out = Path("data/evaluation"),
) -> EvaluationReport:
    """Rolls both attackers out on the dev prompts and writes what they scored."""
    from astra_core.metrics.statistics import bootstrap_mean

    prompts = read_prompts(valid / "dev.parquet", limit=evaluation.num_prompts)
    system, seed = remembered(system, attacker / "astra.json"), training_seed
    trained, key = _examined(attacker, prompts, seed, machine, system, reward, evaluation, base)
    untrained, _ = _examined(None, prompts, seed, machine, system, reward, evaluation, base)
    gains = [
        after.success_rate - before.success_rate
        for after, before in zip(trained.outcomes, untrained.outcomes, strict=True)
    ]
    lift = bootstrap_mean(
        gains, num_resamples=evaluation.num_resamples, confidence=evaluation.confidence, seed=seed
    )
    record = {
        "evaluation_key": key,
        "num_prompts": len(prompts),
        "num_rollouts": evaluation.num_rollouts,
        "depth": evaluation.depth,
        "threshold": evaluation.threshold,
        "confidence": evaluation.confidence,
        "attacker": trained.record(),
        "baseline": untrained.record(),
        "lift": lift.record(),
    }
    write_json(finite(record), report)
    rows = [*_rows(trained, "attacker"), *_rows(untrained, "baseline")]
    write_prompt_table(rows, table)
    with draft_folder_of(evidence) as draft:
        write_rollouts(trained.graphs, draft / "attacker.parquet")
        write_rollouts(untrained.graphs, draft / "baseline.parquet")
    page = examples_page(trained.graphs, count=evaluation.num_examples)
    write_text(page, examples)
    return EvaluationReport(
        attacker=trained.intervals["attack_success_rate"],
        baseline=untrained.intervals["attack_success_rate"],
        lift=lift,
        unique_probes=trained.figures["unique_probes"],
        num_prompts=len(prompts),
    )


def evaluate_checkpoint(
    weights: Path | None,
    params: Params,
    *,
    prompts: Iterable[Prompt] | None = None,
    base: Path = Path("models/base"),
    valid: Path = Path("data/valid"),
) -> tuple[dict[str, Any], "pd.DataFrame"]:
    """The record and per-prompt table of any attacker's folder, examined as params.yaml says.

    Args:
        weights: A Hugging Face folder; None is the untrained attacker.
        params: The whole of params.yaml.
        prompts: Other prompts than the dev prompts, for example fresh ones.
        base: What the models stage wrote.
        valid: What the validation stage wrote.
    """
    import pandas as pd

    evaluation = params.evaluation
    chosen = (
        list(prompts)
        if prompts is not None
        else read_prompts(valid / "dev.parquet", limit=evaluation.num_prompts)
    )
    config = evaluation.model_copy(update={"num_prompts": len(chosen)})
    system = remembered(params.system, weights / "astra.json") if weights else params.system
    examined, key = _examined(
        weights, chosen, params.training_seed, params.machine, system, params.reward, config, base
    )
    record = {
        "evaluation_key": key,
        "num_prompts": len(chosen),
        "threshold": evaluation.threshold,
        "attacker": examined.record(),
    }
    return finite(record), pd.DataFrame(_rows(examined, "attacker"))


def _examined(
    weights: Path | None,
    prompts: list[Prompt],
    seed: int,
    machine: MachineConfiguration,
    system: SystemConfiguration,
    reward: Choice,
    evaluation: EvaluationConfiguration,
    base: Path,
) -> tuple["Evaluation", str]:
    """An attacker's evaluation, and the key that equal examinations share."""
    from astra_core.assembly import ModelFolders, build_evaluator, load_system

    folders = ModelFolders.of(read_model_paths(base), attacker=weights)
    loaded = load_system(system, folders, machine=machine)
    evaluator = build_evaluator(evaluation, reward, prompts=prompts, seed=seed)
    examination = evaluation.model_dump(
        mode="json", include={"num_rollouts", "num_responses", "depth", "threshold"}
    )
    ids = [prompt.prompt_id for prompt in prompts]
    key = record_digest([loaded.digest(), examination, ids, seed])
    return evaluator.evaluate(loaded), key


def _rows(evaluation: "Evaluation", role: str) -> list[dict[str, Any]]:
    return [{"role": role, **asdict(outcome)} for outcome in evaluation.outcomes]


def _spelled(interval: "Interval") -> str:
    return f"{interval.value:.1%} [{interval.low:.1%}, {interval.high:.1%}]"
