"""Both attackers against other targets and each of several: what one falls for another may not."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING

from astra_core.config import TransferConfiguration
from astra_core.files import record_digest
from astra_core.metrics.statistics import paired_gain, rate_interval
from astra_core.registry import build
from tasks.figures.examination import Examiner
from tasks.records.evaluation import Transfer

if TYPE_CHECKING:
    from astra_core.evaluator import Evaluation
    from astra_core.rollout import Graph
    from astra_core.system import System


def transfers(
    trained: "Evaluation", untrained: "Evaluation", *, examiner: Examiner, system: "System"
) -> dict[str, Transfer]:
    """Success of both attackers' first turns against variants of the System's target.

    Raises BudgetError or TargetError if a target answers no more.
    """
    return {
        name: _transfer(trained, untrained, other, examiner=examiner, system=system)
        for name, other in examiner.params.evaluation.transfer.items()
    }


def by_target(
    trained: "Evaluation", untrained: "Evaluation", *, examiner: Examiner
) -> dict[str, Transfer]:
    """Success of both attackers against each of several weighted targets; {} for one target."""
    found = {}
    for name in trained.weights:
        sides = [own.against(name) for own in (trained, untrained)]
        rates = ({each.prompt_id: each.success_rate for each in own} for own in sides)
        found[name] = _compare(rates, examiner=examiner)
    return found


def _transfer(
    trained: "Evaluation",
    untrained: "Evaluation",
    other: TransferConfiguration,
    *,
    examiner: Examiner,
    system: "System",
) -> Transfer:
    system = _against(other, system)
    account = record_digest([other.model_dump(mode="json"), examiner.params.training_seed])[:16]
    with system.target.evaluating(), system.target.account_for(f"transfer {account}"):
        sides = [trained.graphs, untrained.graphs]
        rates = _rates(sides, system, other.columns, examiner=examiner)
    return _compare(rates, examiner=examiner)


def _compare(sides: Iterable[Mapping[str, float]], *, examiner: Examiner) -> Transfer:
    """``sides``: success by prompt of the trained attacker, then of the untrained one."""
    after, before = sides
    ids, bootstrap = list(after), examiner.believer.bootstrap
    return Transfer(
        attacker=rate_interval(list(after.values()), **bootstrap),
        baseline=rate_interval([before[name] for name in ids], **bootstrap),
        lift=paired_gain(ids, [after[name] - before[name] for name in ids], **bootstrap),
    )


def _against(other: TransferConfiguration, system: "System") -> "System":
    """The System with the other target, which speaks with the same weights if it loads them so."""
    from astra_core.system import System
    from astra_core.targets.causal_lm import LOADING, speaker_of

    choice = other.target_of(system.config.target)
    config = system.config.model_copy(update={"target": choice})
    own = None if LOADING & other.options.keys() else speaker_of(system.target)
    surroundings = replace(system.target.surroundings, config=config, language_model=own)
    victim = build("target", choice, surroundings=surroundings)
    return System.of(system.attacker, victim, system.reference, scorer=system.scorer, config=config)


def _rates(
    sides: Sequence[Sequence["Graph"]],
    system: "System",
    columns: Mapping[str, str],
    *,
    examiner: Examiner,
) -> list[dict[str, float]]:
    """For each side by prompt the share of first turns that succeed, NaN if none was judged."""
    from astra_parts.samplers.rewording import asked_first

    evaluation = examiner.params.evaluation
    by_prompt: list[dict[str, list[float]]] = [
        {graph.prompt.prompt_id: [] for graph in graphs} for graphs in sides
    ]
    said = [
        (side, graph.prompt, node.probe_text)
        for side, graphs in enumerate(sides)
        for graph in graphs
        for node in graph.children
        if not node.has_failed
    ]
    # Of both sides together: what the target reads before the probes of a prompt it reads once. By
    # prompt: a target that fails at the end fails both.
    said.sort(key=lambda own: own[1].prompt_id)
    found = asked_first(
        system,
        [
            (replace(prompt, metadata={**prompt.metadata, **columns}), text)
            for _, prompt, text in said
        ],
        num_replies=evaluation.num_responses,
        threshold=evaluation.threshold,
        seed=examiner.params.training_seed,
    )
    for (side, prompt, _), rate in zip(said, found, strict=True):
        if not math.isnan(rate):
            by_prompt[side][prompt.prompt_id].append(rate)
    return [
        {name: fmean(own) if own else math.nan for name, own in each.items()} for each in by_prompt
    ]
