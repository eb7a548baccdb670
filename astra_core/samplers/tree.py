"""Trees grown level by level: all prompts and siblings of a level in one call per model."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pydantic import Field

from astra_core.config import Count, Section
from astra_core.errors import RolloutError, TargetError
from astra_core.models.language_model import Continuations, Utterance
from astra_core.rollout import Graph, Node, Prompt
from astra_core.sampler import Sampler
from astra_core.samplers.scoring import LevelScoring
from astra_core.seeding import derive_key


@dataclass(slots=True)
class _Branch:
    """A conversation that may grow: what each side has read so far, and the turn that led here.

    ``is_whole`` says that the target read exactly what the attacker read and wrote, token by token.
    """

    prompt: Prompt
    path: tuple[int, ...]
    attacker_ids: tuple[int, ...]
    target_ids: tuple[int, ...]
    node: Node | None = None
    is_whole: bool = True
    branches: list["_Branch"] = field(default_factory=list)


class TreeSampler(Sampler):
    """Every node gets ``tree_width`` children until ``tree_depth`` turns are spoken."""

    class Options(Section):
        """The shape of the tree."""

        tree_width: Count = Field(default=4, description="Probes tried after every context.")
        tree_depth: Count = Field(default=2, description="Turns of a conversation.")
        num_responses: Count = Field(
            default=3, description="Replies drawn for each probe; their scores are averaged."
        )

    options: Options

    @property
    def has_siblings(self) -> bool:
        """True when the tree branches."""
        return self.options.tree_width > 1

    def roll_out(self, prompts: Sequence[Prompt], *, iteration: int) -> list[Graph]:
        """One tree per prompt; see ``Sampler.roll_out``."""
        widths = (self.options.tree_width,) * self.options.tree_depth
        return self.grow(
            prompts,
            widths,
            purpose="training",
            iteration=iteration,
            num_responses=self.options.num_responses,
        )

    def grow(
        self,
        prompts: Sequence[Prompt],
        widths: Sequence[int],
        *,
        purpose: str,
        iteration: int,
        num_responses: int,
    ) -> list[Graph]:
        """Trees with ``widths[d]`` probes after every context of depth ``d``."""
        roots = [self._root(prompt) for prompt in prompts]
        level, name = roots, (purpose, iteration)
        with self.system.remembering():
            if widths[0] > 1:
                self._read_once(roots)
            for width in widths:
                level = self._grow_level(level, width, name, num_responses)
        graphs = [
            Graph(root.prompt, iteration, tuple(_assembled(child) for child in root.branches))
            for root in roots
        ]
        self.refuse_many_failures(graphs)
        return graphs

    def _read_once(self, roots: list[_Branch]) -> None:
        """Lets the target read what all first turns of a prompt will begin with."""
        system = self.system
        limit = system.context_limit(system.target, system.config.response.max_new_tokens)
        contexts = [root.target_ids for root in roots if len(root.target_ids) < limit]
        if contexts:
            budget = system.config.tokens_per_batch
            system.target.read(contexts, tokens_per_batch=budget)

    def _root(self, prompt: Prompt) -> _Branch:
        attacker, target = self.system.attacker, self.system.target
        own = attacker.opening_ids + attacker.closed(attacker.encode(prompt.text))
        if self.system.shares_tokenizer:
            return _Branch(prompt, (), own, own)
        return _Branch(
            prompt, (), own, target.opening_ids + target.closed(target.encode(prompt.text))
        )

    def _grow_level(
        self, level: list[_Branch], width: int, name: tuple[str, int], num_responses: int
    ) -> list[_Branch]:
        level = [branch for branch in level if branch.node is None or not branch.node.has_failed]
        children = [child for branch in level for child in self._probed(branch, width)]
        self._fill_probes(level, children, width, name)
        self._fill_responses(children, name, num_responses)
        self._fill_reference(children)
        for branch, start in zip(level, range(0, len(children), width), strict=True):
            branch.branches = children[start : start + width]
        return children

    def _probed(self, branch: _Branch, width: int) -> list[_Branch]:
        return [
            _Branch(branch.prompt, (*branch.path, index), branch.attacker_ids, branch.target_ids)
            for index in range(width)
        ]

    def _fill_probes(
        self, level: list[_Branch], children: list[_Branch], width: int, name: tuple[str, int]
    ) -> None:
        system, generation = self.system, self.system.config.probe
        limit = system.context_limit(system.attacker, generation.max_new_tokens)
        contexts = [branch.attacker_ids[-limit:] for branch in level]
        keys = [
            [self._key(child, "probe", name) for child in children[start : start + width]]
            for start in range(0, len(children), width)
        ]
        sampled = system.attacker.continuations(
            contexts, keys, generation, tokens_per_batch=system.config.tokens_per_batch
        )
        stream = iter(children)
        for branch, context, continuations in zip(level, contexts, sampled, strict=True):
            for utterance in continuations.utterances:
                cut = len(branch.attacker_ids) - len(context)
                next(stream).node = _opened(utterance, context, cut)

    def _fill_responses(
        self, children: list[_Branch], name: tuple[str, int], num_responses: int
    ) -> None:
        system, generation = self.system, self.system.config.response
        limit = system.context_limit(system.target, generation.max_new_tokens)
        contexts, suffixes = [], []
        for child in children:
            probe = self._in_target_ids(child)
            contexts.append((child.target_ids + probe)[-limit:])
            suffixes.append(min(len(probe), len(contexts[-1]) - 1))
            child.is_whole = self._reads_the_same(child, probe, len(contexts[-1]))
        keys = [
            [self._key(child, f"response {reply}", name) for reply in range(num_responses)]
            for child in children
        ]
        probes = [child.node.probe_text for child in children if child.node is not None]
        try:
            with LevelScoring(system, probes) as scoring:
                answers = system.target.continuations(
                    contexts,
                    keys,
                    generation,
                    suffix_lengths=suffixes,
                    tokens_per_batch=system.config.tokens_per_batch,
                )
        except TargetError as error:
            # The one boundary: anything else is a bug of ours and must surface.
            for child in children:
                child.node = _failed(child, f"{type(error).__name__}: {error}")
            return
        self._score(children, answers, scoring)

    def _score(
        self, children: list[_Branch], answers: list[Continuations], scoring: LevelScoring
    ) -> None:
        texts = [utterance.text for answer in answers for utterance in answer.utterances]
        replies, own = map(iter, scoring.collect(texts))
        self.score_s += scoring.waited_s
        for child, answer in zip(children, answers, strict=True):
            values = tuple(next(replies) for _ in answer.utterances)
            self._answer(child, answer, values, next(own))

    def _answer(
        self, child: _Branch, answer: Continuations, scores: tuple[float, ...], probe_score: float
    ) -> None:
        if child.node is None:  # pragma: no cover - every child was probed just before
            return
        system, first = self.system, answer.utterances[0]
        # The suffix ends with the separator when the probe was cut off; only the probe counts.
        likelihood = answer.suffix_logprobs
        if system.shares_tokenizer:
            num_added = len(self._in_target_ids(child)) - len(child.node.probe_ids)
            likelihood = likelihood[: len(likelihood) - max(num_added, 0)]
        child.node = replace(
            child.node,
            path=child.path,
            target_logprobs=likelihood,
            response_texts=tuple(utterance.text for utterance in answer.utterances),
            response_ids=tuple(utterance.token_ids for utterance in answer.utterances),
            response_scores=scores,
            score=math.fsum(scores) / len(scores),
            probe_score=probe_score,
        )
        child.target_ids += self._in_target_ids(child) + system.target.closed(first.token_ids)
        child.attacker_ids += system.attacker.closed(child.node.probe_ids)
        if system.shares_tokenizer:
            child.attacker_ids += system.attacker.closed(first.token_ids)
        else:
            child.attacker_ids += system.attacker.closed(system.attacker.encode(first.text))

    def _reads_the_same(self, child: _Branch, probe: tuple[int, ...], kept: int) -> bool:
        node = child.node
        if node is None or not self.system.shares_tokenizer or node.truncated_tokens:
            return False
        is_uncut = kept == len(child.target_ids) + len(probe)
        return is_uncut and probe[: len(node.probe_ids)] == node.probe_ids

    def _fill_reference(self, children: list[_Branch]) -> None:
        """Reference log-probabilities; most are known where reference and target are one."""
        missing = []
        for child in children:
            if child.node is None:  # pragma: no cover - every child was probed just before
                continue
            if self.system.reference_is_target and child.is_whole and child.node.target_logprobs:
                child.node = replace(child.node, reference_logprobs=child.node.target_logprobs)
            else:
                missing.append((child, child.node))
        values = self.system.reference.continuation_logprobs(
            [node.context_ids for _, node in missing],
            [node.probe_ids for _, node in missing],
            tokens_per_batch=self.system.config.tokens_per_batch,
        )
        for (child, node), logprobs in zip(missing, values, strict=True):
            child.node = replace(node, reference_logprobs=logprobs)

    def _in_target_ids(self, child: _Branch) -> tuple[int, ...]:
        """The probe as the target reads it, closed by the separator."""
        if child.node is None:  # pragma: no cover - every child was probed just before
            return ()
        target = self.system.target
        if self.system.shares_tokenizer:
            return target.closed(child.node.probe_ids)
        return target.closed(target.encode(child.node.probe_text))

    def _key(self, child: _Branch, role: str, name: tuple[str, int]) -> bytes:
        purpose, iteration = name
        return derive_key(self.seed, purpose, role, iteration, child.prompt.prompt_id, child.path)


def _opened(utterance: Utterance, context: tuple[int, ...], truncated: int) -> Node:
    """A turn of which only the probe is known."""
    return Node(
        path=(),
        context_ids=context,
        truncated_tokens=truncated,
        probe_text=utterance.text,
        probe_ids=utterance.token_ids,
        probe_logprobs=utterance.logprobs,
        probe_mask=(True,) * len(utterance.token_ids),
        reference_logprobs=(),
        target_logprobs=(),
        response_texts=(),
        response_ids=(),
        response_scores=(),
        score=math.nan,
        probe_score=0.0,
    )


def _failed(child: _Branch, reason: str) -> Node:
    if child.node is None:  # pragma: no cover - every child was probed just before
        msg = f"branch {child.path} has no probe"
        raise RolloutError(msg)
    return replace(child.node, path=child.path, failure=reason)


def _assembled(branch: _Branch) -> Node:
    if branch.node is None:  # pragma: no cover - every branch below a root was probed
        msg = f"branch {branch.path} has no turn"
        raise RolloutError(msg)
    return replace(branch.node, children=tuple(_assembled(child) for child in branch.branches))
