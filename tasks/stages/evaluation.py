"""Stage ``evaluation``: the trained attacker beside the untrained one, on the same prompts."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from astra_core.config import (
    Choice,
    EvaluationConfiguration,
    MachineConfiguration,
    SystemConfiguration,
)
from astra_core.files import draft_folder_of, record_digest, write_text
from astra_core.rollout import Prompt
from tasks.params.schema import Params
from tasks.pipeline.precision import remembered
from tasks.pipeline.stage import Dep, Metric, Out, sections_for, stage
from tasks.records.evaluation import EvaluationRecord, write_prompt_table
from tasks.records.models import read_model_paths
from tasks.records.prompts import read_prompts
from tasks.records.reports import nan_as_null, write_record
from tasks.records.rollouts import write_rollouts
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
            f"attack success {self.baseline.spelled('.1%')} -> {self.attacker.spelled('.1%')} "
            f"on {self.num_prompts} dev prompts, unique probes {self.unique_probes:.2f}"
        )


@dataclass(frozen=True, slots=True)
class EvaluationParams:
    """What decides an examination."""

    training_seed: int
    machine: MachineConfiguration
    system: SystemConfiguration
    reward: Choice
    evaluation: EvaluationConfiguration


@dataclass(frozen=True, slots=True)
class EvaluationFiles:
    """Prompts and models, and where reports, table, examples and replies go."""

    valid: Dep = Path("data/valid")
    base: Dep = Path("models/base")
    attacker: Dep = Path("models/attacker")
    report: Metric = Path("reports/evaluation.json")
    table: Out = Path("reports/evaluation_prompts.parquet")
    examples: Out = Path("reports/examples.md")
    evidence: Out = Path("data/evaluation")


@stage(
    code=(
        "tasks/stages/evaluation.py",
        "tasks/pipeline/precision.py",
        "tasks/reporting/examples.py",
        "tasks/records/evaluation.py",
        "tasks/records/models.py",
        "tasks/records/prompt_table.py",
        "tasks/records/prompts.py",
        "tasks/records/reports.py",
        "tasks/records/rollouts.py",
        "astra_core/assembly.py",
        "astra_core/evaluator.py",
        "astra_core/errors/excerpt.py",
        "astra_core/training/launch.py",
        "astra_core/metadata.py",
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
    params: EvaluationParams, files: EvaluationFiles = EvaluationFiles()
) -> EvaluationReport:
    """Rolls both attackers out on the dev prompts and writes what they scored."""
    evaluation = params.evaluation
    prompts = read_prompts(files.valid / "dev.parquet", limit=evaluation.num_prompts)
    params = replace(params, system=remembered(params.system, files.attacker / "astra.json"))
    trained, key = _examined(files.attacker, prompts, params, base=files.base)
    untrained, _ = _examined(None, prompts, params, base=files.base)
    lift = _lift(trained, untrained, params)
    record = EvaluationRecord(
        evaluation_key=key,
        num_prompts=len(prompts),
        num_rollouts=evaluation.num_rollouts,
        depth=evaluation.depth,
        threshold=evaluation.threshold,
        confidence=evaluation.confidence,
        attacker={**trained.intervals, **trained.figures},
        baseline={**untrained.intervals, **untrained.figures},
        lift=lift,
    )
    write_record(record, files.report)
    _write_evidence(trained, untrained, files, num_examples=evaluation.num_examples)
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
    system = remembered(params.system, weights / "astra.json") if weights else params.system
    own = replace(
        sections_for(EvaluationParams, params),
        system=system,
        evaluation=evaluation.model_copy(update={"num_prompts": len(chosen)}),
    )
    examined, key = _examined(weights, chosen, own, base=base)
    record = {
        "evaluation_key": key,
        "num_prompts": len(chosen),
        "threshold": evaluation.threshold,
        "attacker": examined.record(),
    }
    return nan_as_null(record), pd.DataFrame(_rows(examined, "attacker"))


def _examined(
    weights: Path | None, prompts: list[Prompt], params: EvaluationParams, *, base: Path
) -> tuple["Evaluation", str]:
    """An attacker's evaluation, and the key that equal examinations share."""
    from astra_core.assembly import ModelFolders, build_evaluator, load_system

    evaluation, seed = params.evaluation, params.training_seed
    folders = ModelFolders.of(read_model_paths(base), attacker=weights)
    loaded = load_system(params.system, folders, machine=params.machine)
    evaluator = build_evaluator(evaluation, params.reward, prompts=prompts, seed=seed)
    examination = evaluation.model_dump(
        mode="json", include={"num_rollouts", "num_responses", "depth", "threshold"}
    )
    ids = [prompt.prompt_id for prompt in prompts]
    key = record_digest([loaded.digest(), examination, ids, seed])
    return evaluator.evaluate(loaded), key


def _lift(trained: "Evaluation", untrained: "Evaluation", params: EvaluationParams) -> "Interval":
    """The mean gain in the success rate, prompt by prompt."""
    from astra_core.metrics.statistics import bootstrap_mean

    gains = [
        after.success_rate - before.success_rate
        for after, before in zip(trained.outcomes, untrained.outcomes, strict=True)
    ]
    return bootstrap_mean(
        gains,
        num_resamples=params.evaluation.num_resamples,
        confidence=params.evaluation.confidence,
        seed=params.training_seed,
    )


def _write_evidence(
    trained: "Evaluation", untrained: "Evaluation", files: EvaluationFiles, *, num_examples: int
) -> None:
    """Writes the table of prompts, every reply, and the page of examples."""
    rows = [*_rows(trained, "attacker"), *_rows(untrained, "baseline")]
    write_prompt_table(rows, files.table)
    with draft_folder_of(files.evidence) as draft:
        write_rollouts(trained.graphs, draft / "attacker.parquet")
        write_rollouts(untrained.graphs, draft / "baseline.parquet")
    write_text(examples_page(trained.graphs, count=num_examples), files.examples)


def _rows(evaluation: "Evaluation", role: str) -> list[dict[str, Any]]:
    return [{"role": role, **asdict(outcome)} for outcome in evaluation.outcomes]
