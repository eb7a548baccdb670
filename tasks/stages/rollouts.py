"""Stage ``rollouts``: the untrained attacker's rollouts, validated before they are accepted.

They are the first experience of training, and a cheap place to detect a broken scorer.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from astra_core.config import RolloutsConfiguration
from astra_core.files import draft_folder_of, record_digest, write_text
from astra_core.rollout import Graph
from astra_core.scorer import version_of
from astra_core.target import checked_figures
from tasks.pipeline.precision import remember
from tasks.pipeline.setup import RolloutsParams
from tasks.pipeline.stage import Dep, Out, plain_sections, stage
from tasks.records.models import read_manifest
from tasks.records.prompts import read_prompts
from tasks.records.reports import write_record
from tasks.records.rollout_report import RolloutsRecord
from tasks.records.rollouts import ROLLOUTS_FILE, rollout_tables, write_rollouts

if TYPE_CHECKING:
    from astra_core.sampler import Sampler
    from astra_core.system import System
    from tasks.expectations import ValidationReport

# Trees that are rolled out and kept in memory before they are written.
_TREES_AT_ONCE = 4096


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
class RolloutsFiles:
    """Prompts and models, and where the rollouts and their report go."""

    valid: Dep = Path("data/valid")
    base: Dep = Path("models/base")
    folder: Out = Path("data/rollouts")
    report: Out = Path("reports/rollouts.json")
    docs: Out = Path("reports/data_docs/rollouts.html")


@dataclass(frozen=True, slots=True)
class RolloutsSetup:
    """The sampler of the untrained attacker on the training prompts."""

    params: RolloutsParams
    sampler: "Sampler"

    @classmethod
    def of(cls, params: RolloutsParams, files: RolloutsFiles = RolloutsFiles()) -> Self:
        """Loads the models."""
        return cls(params, params.sampler(files.base, read_prompts(files.valid / "train.parquet")))


@stage()
def collect_rollouts(
    setup: RolloutsSetup, files: RolloutsFiles = RolloutsFiles()
) -> RolloutsSummary:
    """Rolls the untrained attacker out on training prompts and checks the rollouts.

    Raises GateError if the rollouts are not fit to learn from; nothing is accepted, DataError if
    the judge judges nothing.
    """
    from tasks.expectations.data_docs import data_docs
    from tasks.expectations.judge_trial import try_judge

    params, loaded = setup.params, setup.sampler.system
    doubts = try_judge(loaded.scorer)
    talk = _Talk()
    with draft_folder_of(files.folder) as draft:
        with loaded.target.account_for(f"rollouts {record_digest(plain_sections(params))[:16]}"):
            graphs = talk.heard(_collect(setup))
            num_turns = write_rollouts(graphs, draft / ROLLOUTS_FILE)
            used = checked_figures(loaded.target)
        if params.system.precision == "auto":
            remember(loaded.config, draft)
        validated = _validate(draft / ROLLOUTS_FILE, params.rollouts, loaded)
        write_text(data_docs("Rollouts", [validated]), files.docs)
        if not validated.success:
            write_record({"checks": validated.to_record()}, files.report)
            validated.require_success(files.report)
    summary = RolloutsSummary(
        num_prompts=talk.num_graphs // params.rollouts.runs_per_prompt,
        num_turns=num_turns,
        score_mean=_mean(talk.scores),
        success_rate=_mean([float(score >= 0.5) for score in talk.scores]),
        num_unjudged=talk.num_unjudged,
        advice=doubts + tuple(validated.advice.values()),
    )
    judge, attacker = version_of(loaded.scorer), read_manifest(files.base).attacker.digest
    profile = validated.profile and replace(validated.profile, judge=judge, attacker=attacker)
    written = RolloutsRecord(
        **{name: value for name, value in asdict(summary).items() if name != "advice"},
        reward_mean=_mean(talk.rewards),
        target_nll_mean=_mean(talk.target_nlls),
        scorer=judge,
        system_precision=loaded.config.precision,
        checks=replace(validated, profile=profile).to_record(),
        target=used or None,
    )
    write_record(written, files.report)
    return summary


@dataclass(slots=True)
class _Talk:
    """The numbers that the report needs, so that no tree is kept for it."""

    num_graphs: int = 0
    num_unjudged: int = 0
    scores: list[float] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    target_nlls: list[float] = field(default_factory=list)

    def heard(self, graphs: Iterable[Graph]) -> Iterator[Graph]:
        """The graphs, each counted as it passes."""
        for graph in graphs:
            self.num_graphs += 1
            for node in graph.nodes():
                self.num_unjudged += sum(score is None for score in node.response_scores)
                if node.is_judged:
                    self.scores.append(node.score)
                    self.rewards.append(node.reward)
                    self.target_nlls.append(node.target_nll)
            yield graph


def _collect(setup: RolloutsSetup) -> Iterator[Graph]:
    """The rewarded rollouts, piece by piece, of as many prompts as asked for and available."""
    from astra_core.reward import reward_graphs
    from astra_core.sampler import rolled_out_in_pieces

    params, sampler = setup.params, setup.sampler
    chosen = sampler.runs(0, min(params.rollouts.num_prompts, len(sampler.prompts)))
    # Whole shards are rolled out before they are written, so all have one size.
    shard = params.machine.prompts_per_shard or 1
    at_once = max(_TREES_AT_ONCE // shard, 1) * shard
    for graphs in rolled_out_in_pieces(sampler, chosen, iteration=0, at_once=at_once):
        yield from reward_graphs(sampler.reward, graphs)


def _mean(values: Sequence[float]) -> float:
    """The mean; 0 for no values."""
    return sum(values) / max(len(values), 1)


def _validate(path: Path, rollouts: RolloutsConfiguration, system: "System") -> "ValidationReport":
    """The report of the rollout suite on the file as it was written."""
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
