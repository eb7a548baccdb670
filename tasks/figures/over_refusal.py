"""Over-refusal: how many harmless requests the target refuses, beside how often attacks succeed."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from astra_core.errors import BudgetError, TargetError
from astra_core.files import file_digest, record_digest
from astra_core.metrics.statistics import Interval
from astra_core.rollout import Prompt
from astra_core.scorer import checked_scores
from astra_parts.judges.refusal import RefusalScorer
from astra_parts.metrics.detection import proportion
from tasks.figures.examination import Examiner
from tasks.figures.plain_questions import TRIED_WITH
from tasks.machine.console import complain
from tasks.records.evaluation import OverRefusal, TypeRefusals
from tasks.sources.requests import Request, read_requests, requests_file

if TYPE_CHECKING:
    from astra_core.system import System


def over_refusal(
    prompts: Sequence[Prompt], *, examiner: Examiner, system: "System"
) -> OverRefusal | None:
    """What the target refuses of ``evaluation.benign_prompts``, each asked once and first.

    None, with a warning, where its budget is spent or it does not answer; None where no file is
    named.

    ``prompts``: of the examination: the target's system prompt may have slots for their columns.
    """
    from astra_parts.samplers.rewording import first_replies

    params = examiner.params
    path, seed = requests_file(params.evaluation), params.training_seed
    if path is None:
        return None
    requests, digest = read_requests(path), file_digest(path)
    # Of a few: a system prompt with slots is then read for several requests.
    questions = questions_of([own.text for own in requests], prompts[:TRIED_WITH])
    account = f"benign {record_digest([digest, seed])[:16]}"
    try:
        with system.target.evaluating(), system.target.account_for(account):
            replies = first_replies(system, questions, seed=seed)
    except (BudgetError, TargetError) as error:
        complain(f"warning: over-refusal was not measured: {error}")
        return None
    pairs = zip(requests, replies, strict=True)
    answered = [(request, reply) for request, reply in pairs if reply is not None]
    told, judge = refusals([reply for _, reply in answered])
    refused = [(own, is_refused) for (own, _), is_refused in zip(answered, told, strict=True)]
    if not any(own.is_safe for own, _ in refused):
        complain("warning: over-refusal was not measured: no harmless request has a reply")
        return None
    return _over_refusal(
        refused,
        requests=digest,
        judge=judge,
        num_failed=len(requests) - len(answered),
        confidence=params.evaluation.confidence,
    )


def questions_of(texts: Sequence[str], prompts: Sequence[Prompt]) -> list[tuple[Prompt, str]]:
    """Texts as first turns, each with the columns of one of the prompts in turn."""
    columns = [prompt.metadata for prompt in prompts]
    return [
        (Prompt.of("", columns[number % len(columns)]), text) for number, text in enumerate(texts)
    ]


def refusals(replies: Sequence[str]) -> tuple[list[bool], str]:
    """Which of the replies refuse, and the version of what tells it."""
    judge = RefusalScorer(RefusalScorer.Options(counts="refusal"))
    return [score > 0 for score in checked_scores(judge, replies)], judge.version


def _over_refusal(
    refused: Sequence[tuple[Request, bool]],
    *,
    requests: str,
    judge: str,
    num_failed: int,
    confidence: float,
) -> OverRefusal:
    safe = [(own.type, is_refused) for own, is_refused in refused if own.is_safe]
    unsafe = [is_refused for own, is_refused in refused if not own.is_safe]

    def rate(told: Sequence[bool]) -> Interval:
        return proportion(sum(told), len(told), confidence=confidence)

    kinds = dict.fromkeys(kind for kind, _ in safe if kind)
    by_kind = {kind: [refused for own, refused in safe if own == kind] for kind in kinds}
    return OverRefusal(
        requests=requests,
        judge=judge,
        num_safe=len(safe),
        num_unsafe=len(unsafe),
        num_failed=num_failed,
        rate=rate([is_refused for _, is_refused in safe]),
        unsafe_rate=rate(unsafe) if unsafe else None,
        types={kind: TypeRefusals(len(own), rate(own)) for kind, own in by_kind.items()},
    )
