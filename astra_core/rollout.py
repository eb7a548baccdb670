"""Trees of turns, with token ids, log-probabilities and masks from sampling to loss.

Text is derived for people and scorers and is never tokenised again for training.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

Path = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Prompt:
    """A seed that opens a conversation; the id is a hash of the text."""

    prompt_id: str
    text: str


@dataclass(frozen=True, slots=True)
class Node:
    """One turn: a probe, the replies it drew, and what was thought of them.

    Attributes:
        path: Child indices from the root, so ``(0, 2)`` is the third probe after the first turn.
        context_ids: What the attacker had read, in its own tokenizer.
        truncated_tokens: Older tokens cut from the context to fit.
        probe_text: For people and scorers.
        probe_ids: As sampled, the end token included.
        probe_logprobs: Under the policy that sampled, nats.
        probe_mask: True at the tokens that are trained.
        reference_logprobs: Of the probe under the reference, nats; empty when not computed.
        target_logprobs: Of the probe under the target given the same context, nats.
        response_texts: Independent replies of the target; the conversation goes on with the first.
        response_ids: In the target's tokenizer.
        response_scores: One per reply, in [0, 1].
        score: Their mean; NaN when the turn failed.
        probe_score: The scorer's opinion of the probe itself.
        novelty: Share of the probe that had not been said before, in [0, 1].
        reward: What the algorithm maximises.
        failure: Why the turn has no reply; empty when it has.
        children: Turns that follow.
    """

    path: Path
    context_ids: tuple[int, ...]
    truncated_tokens: int
    probe_text: str
    probe_ids: tuple[int, ...]
    probe_logprobs: tuple[float, ...]
    probe_mask: tuple[bool, ...]
    reference_logprobs: tuple[float, ...]
    target_logprobs: tuple[float, ...]
    response_texts: tuple[str, ...]
    response_ids: tuple[tuple[int, ...], ...]
    response_scores: tuple[float, ...]
    score: float
    probe_score: float
    novelty: float = 1.0
    reward: float = 0.0
    failure: str = ""
    children: tuple["Node", ...] = field(default=())

    @property
    def has_failed(self) -> bool:
        """True when the turn teaches nothing."""
        return bool(self.failure)

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
