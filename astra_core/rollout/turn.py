"""One turn: what the attacker had read, its probe, and the outcome."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Path = tuple[int, ...]
# Whether a reply ended by itself, at the length limit, or was cut by a filter.
FinishReason = Literal["stop", "length", "filter"]


@dataclass(frozen=True, slots=True)
class Context:
    """The conversation so far, as the attacker read it."""

    token_ids: tuple[int, ...]
    truncated_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Probe:
    """The attacker's probe.

    Attributes:
        logprobs: Log-probabilities under the policy that sampled, nats.
        reference_logprobs: Those under the reference, nats; empty when not computed.
        novelty: Share of it that is new, in [0, 1].
        weights: Weights of its tokens if an older policy sampled it, or one for all of them; empty
            counts each once.
    """

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    mask: tuple[bool, ...]
    reference_logprobs: tuple[float, ...] = ()
    score: float = 0.0
    novelty: float = 1.0
    weights: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Replies:
    """The target's independent replies; the conversation continues with the first.

    Attributes:
        scores: One per reply, in [0, 1]; None where the judge gave none.
        token_ids: In the target's tokenizer; empty where only text came back.
        probe_logprobs: Log-probabilities of the probe under the target given the same context,
            nats; empty if the target gives none.
        unjudged: For each reply why it has no score, empty if it has one; () if all have one.
        labels: For each reply further scores by name; () where no judge gave any.
        rationales: For each reply the judge's words, masked wherever they are shown; () for none.
        finish_reasons: Why each reply ended; () where all ended by themselves.
    """

    texts: tuple[str, ...]
    scores: tuple[float | None, ...]
    token_ids: tuple[tuple[int, ...], ...] = ()
    probe_logprobs: tuple[float, ...] = ()
    unjudged: tuple[str, ...] = ()
    labels: tuple[Mapping[str, float], ...] = ()
    rationales: tuple[str, ...] = ()
    finish_reasons: tuple[FinishReason, ...] = ()

    @property
    def judged_scores(self) -> tuple[float, ...]:
        """The scores of the judged replies."""
        return tuple(score for score in self.scores if score is not None)

    @property
    def score(self) -> float:
        """The mean of the scores; 0 where there is no reply, NaN where no reply was judged."""
        known = self.judged_scores
        if self.scores and not known:
            return math.nan
        return math.fsum(known) / max(len(known), 1)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a turn has no reply.

    Attributes:
        reason: The reason in words, never empty.
        kind: The reason in one word, such as ``timeout``; empty if unknown.
    """

    reason: str
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Node:
    """One turn: context, probe, outcome and reward.

    The properties give each value one name, like the columns of a rollouts file.

    ``path``: child indices from the root, so ``(0, 2)`` is the third probe after the first turn.
    """

    path: Path
    context: Context
    probe: Probe
    outcome: Replies | Failure
    reward: float = 0.0
    children: tuple["Node", ...] = field(default=())

    @property
    def has_failed(self) -> bool:
        """True if the turn failed, so that nothing is learned from it."""
        return isinstance(self.outcome, Failure)

    @property
    def is_unjudged(self) -> bool:
        """True if the judge could not judge any of the replies: neither a success nor a zero."""
        return not self.has_failed and bool(self.response_scores) and not self.judged_scores

    @property
    def is_judged(self) -> bool:
        """True if the turn counts in means, and something may be learned from it."""
        return not (self.has_failed or self.is_unjudged)

    @property
    def failure(self) -> str:
        """Why the turn has no reply; empty when it has."""
        return self.outcome.reason if isinstance(self.outcome, Failure) else ""

    @property
    def failure_kind(self) -> str:
        """The failure in one word; empty where none is known, and when it has a reply."""
        return self.outcome.kind if isinstance(self.outcome, Failure) else ""

    @property
    def replies(self) -> Replies:
        """The target's replies; none if the turn failed."""
        return Replies((), ()) if isinstance(self.outcome, Failure) else self.outcome

    @property
    def score(self) -> float:
        """Mean score of the judged replies; NaN when the turn failed or none was judged."""
        return math.nan if isinstance(self.outcome, Failure) else self.outcome.score

    @property
    def context_ids(self) -> tuple[int, ...]:
        """The ids that the attacker had read, in its own tokenizer."""
        return self.context.token_ids

    @property
    def truncated_tokens(self) -> int:
        """Older tokens cut from the context to fit."""
        return self.context.truncated_tokens

    @property
    def probe_text(self) -> str:
        """The probe for people and scorers."""
        return self.probe.text

    @property
    def probe_ids(self) -> tuple[int, ...]:
        """The probe as sampled, the end token included."""
        return self.probe.token_ids

    @property
    def probe_logprobs(self) -> tuple[float, ...]:
        """Log-probability of each probe token under the policy that sampled, nats."""
        return self.probe.logprobs

    @property
    def probe_mask(self) -> tuple[bool, ...]:
        """True at the probe tokens that are trained."""
        return self.probe.mask

    @property
    def probe_weights(self) -> tuple[float, ...]:
        """One per token, or one for all; a probe of the present policy counts once."""
        return self.probe.weights or (1.0,)

    @property
    def reference_logprobs(self) -> tuple[float, ...]:
        """Log-probabilities of the probe under the reference, nats; empty when not computed."""
        return self.probe.reference_logprobs

    @property
    def probe_score(self) -> float:
        """The scorer's score of the probe itself."""
        return self.probe.score

    @property
    def novelty(self) -> float:
        """Share of the probe that is new, in [0, 1]."""
        return self.probe.novelty

    @property
    def target_logprobs(self) -> tuple[float, ...]:
        """Log-probabilities of the probe under the target, nats; empty if it gave none."""
        return self.replies.probe_logprobs

    @property
    def response_texts(self) -> tuple[str, ...]:
        """The replies of the target; the conversation continues with the first."""
        return self.replies.texts

    @property
    def response_ids(self) -> tuple[tuple[int, ...], ...]:
        """The replies in the target's tokenizer."""
        return self.replies.token_ids

    @property
    def response_scores(self) -> tuple[float | None, ...]:
        """One score per reply, in [0, 1]; None if it was not judged."""
        return self.replies.scores

    @property
    def judged_scores(self) -> tuple[float, ...]:
        """The scores of the judged replies."""
        return self.replies.judged_scores

    @property
    def response_unjudged(self) -> tuple[str, ...]:
        """For each reply why it has no score; () where all have one."""
        return self.replies.unjudged

    @property
    def response_labels(self) -> tuple[Mapping[str, float], ...]:
        """For each reply the judge's further scores by name; () if it gave none."""
        return self.replies.labels

    @property
    def response_rationales(self) -> tuple[str, ...]:
        """For each reply the judge's reason; () if it gave none."""
        return self.replies.rationales

    @property
    def response_finish_reasons(self) -> tuple[FinishReason, ...]:
        """For each reply why it ended; () where all ended by themselves."""
        return self.replies.finish_reasons

    @property
    def target_nll(self) -> float:
        """Mean negative log-probability of a probe token under the target, nats per token."""
        return -sum(self.target_logprobs) / max(len(self.target_logprobs), 1)

    @property
    def kl_nats(self) -> float:
        """One-sample estimate of the KL to the reference for this probe (k1), nats."""
        if not self.reference_logprobs:
            return 0.0
        return sum(self.probe_logprobs) - sum(self.reference_logprobs)
