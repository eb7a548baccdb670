"""Both attackers against other targets: what was learned on one may fail on another."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from astra_core.config import TransferConfiguration
from astra_core.metrics.statistics import paired_gain, rate_interval
from astra_core.rollout import Prompt
from tasks.figures.examination import Examiner, rates
from tasks.records.evaluation import Transfer


def transfers(
    attacker: Path, prompts: Sequence[Prompt], *, examiner: Examiner
) -> dict[str, Transfer]:
    """Attack success against each target of ``evaluation.transfer``, by its name.

    Args:
        attacker: The trained attacker's folder.
        prompts: Those of the examination.
        examiner: Of the examination.
    """
    return {
        name: _transfer(attacker, prompts, other, examiner=examiner)
        for name, other in examiner.params.evaluation.transfer.items()
    }


def _transfer(
    attacker: Path, prompts: Sequence[Prompt], other: TransferConfiguration, *, examiner: Examiner
) -> Transfer:
    system = examiner.params.system
    target = other.target_of(system.target)
    params = replace(examiner.params, system=system.model_copy(update={"target": target}))
    moved = replace(examiner, params=params)
    told = [replace(own, metadata={**own.metadata, **other.columns}) for own in prompts]
    trained, untrained = (
        rates(moved.examine(weights, told, is_final=False)[0]) for weights in (attacker, None)
    )
    bootstrap = examiner.believer.bootstrap
    gains = [after - before for after, before in zip(trained, untrained, strict=True)]
    return Transfer(
        attacker=rate_interval(trained, **bootstrap),
        baseline=rate_interval(untrained, **bootstrap),
        lift=paired_gain([own.prompt_id for own in prompts], gains, **bootstrap),
    )
