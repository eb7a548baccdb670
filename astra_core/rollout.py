"""Trees of turns, with token ids, log-probabilities and masks from sampling to loss.

Text is derived for people and scorers and is never tokenised again for training.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

Path = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Prompt:
    """A seed that opens a conversation; the id is a hash of the text."""

    prompt_id: str
    text: str


@dataclass(frozen=True, slots=True)
class Context:
    """The conversation so far, as the attacker read it.

    Attributes:
        token_ids: In the attacker's tokenizer.
        truncated_tokens: Older tokens cut off to fit.
    """

    token_ids: tuple[int, ...]
    truncated_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Probe:
    """What the attacker said.

    Attributes:
        text: For people and scorers.
        token_ids: As sampled, the end token included.
        logprobs: Under the policy that sampled, nats.
        mask: True at the tokens that are trained.
        reference_logprobs: Under the reference, nats; empty when not computed.
        score: The scorer's score of the probe itself.
        novelty: Share of it that is new, in [0, 1].
    """

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    mask: tuple[bool, ...]
    reference_logprobs: tuple[float, ...] = ()
    score: float = 0.0
    novelty: float = 1.0


@dataclass(frozen=True, slots=True)
class Replies:
    """What the target answered: independent replies; the conversation continues with the first.

    Attributes:
        texts: One per reply.
        scores: One per reply, in [0, 1].
        token_ids: In the target's tokenizer; empty where only text came back.
        probe_logprobs: Of the probe under the target given the same context, nats; empty where the
            target gives none.
    """

    texts: tuple[str, ...]
    scores: tuple[float, ...]
    token_ids: tuple[tuple[int, ...], ...] = ()
    probe_logprobs: tuple[float, ...] = ()

    @property
    def score(self) -> float:
        """The mean of the scores; 0 where there is none."""
        return math.fsum(self.scores) / max(len(self.scores), 1)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a turn has no reply; ``reason`` is never empty."""

    reason: str


@dataclass(frozen=True, slots=True)
class Node:
    """One turn: context, probe, outcome and reward.

    The properties give each value one name, like the columns of a rollouts file.

    Attributes:
        path: Child indices from the root, so ``(0, 2)`` is the third probe after the first turn.
        context: What the attacker had read.
        probe: What it said.
        outcome: What the target answered, or why it did not.
        reward: What the algorithm maximises.
        children: Turns that follow.
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
    def failure(self) -> str:
        """Why the turn has no reply; empty when it has."""
        return self.outcome.reason if isinstance(self.outcome, Failure) else ""

    @property
    def replies(self) -> Replies:
        """What the target answered; without a reply where the turn failed."""
        return Replies((), ()) if isinstance(self.outcome, Failure) else self.outcome

    @property
    def score(self) -> float:
        """Mean score of the replies; NaN when the turn failed."""
        return math.nan if isinstance(self.outcome, Failure) else self.outcome.score

    @property
    def context_ids(self) -> tuple[int, ...]:
        """What the attacker had read, in its own tokenizer."""
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
        """Of each probe token under the policy that sampled, nats."""
        return self.probe.logprobs

    @property
    def probe_mask(self) -> tuple[bool, ...]:
        """True at the probe tokens that are trained."""
        return self.probe.mask

    @property
    def reference_logprobs(self) -> tuple[float, ...]:
        """Of the probe under the reference, nats; empty when not computed."""
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
        """Of the probe under the target given the same context, nats; empty when it gave none."""
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
    def response_scores(self) -> tuple[float, ...]:
        """One per reply, in [0, 1]."""
        return self.replies.scores

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


@dataclass(frozen=True, slots=True)
class Graph:
    """A prompt and the tree of turns that grew from it."""

    prompt: Prompt
    iteration: int
    children: tuple[Node, ...]

    def nodes(self) -> Iterator[Node]:
        """Every turn, breadth first, siblings in order."""
        level = self.children
        while level:
            yield from level
            level = tuple(child for node in level for child in node.children)

    def groups(self) -> Iterator[tuple[Node, ...]]:
        """The siblings of every parent, breadth first; the root's children come first."""
        if self.children:
            yield self.children
        for node in self.nodes():
            if node.children:
                yield node.children

    def paths(self) -> Iterator[tuple[Node, ...]]:
        """Every rollout: the turns from the root to a leaf."""

        def walk(nodes: tuple[Node, ...], before: tuple[Node, ...]) -> Iterator[tuple[Node, ...]]:
            for node in nodes:
                here = (*before, node)
                if node.children:
                    yield from walk(node.children, here)
                else:
                    yield here

        yield from walk(self.children, ())
