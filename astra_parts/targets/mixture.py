"""Several weighted targets as one: each tree is led against one of them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Self

from pydantic import Field, model_validator

from astra_core.config import GenerationConfiguration, Section, WeightedTarget
from astra_core.conversation import Conversation
from astra_core.errors import TargetError
from astra_core.files import record_digest
from astra_core.models.language_model import LanguageModel
from astra_core.registry import find
from astra_core.rollout import Failure
from astra_core.seeding import derive_key
from astra_core.target import (
    LED_AGAINST,
    Outcome,
    Surroundings,
    Target,
    checked_outcomes,
    drawn_target,
)
from astra_core.targets.causal_lm import LOADING, CausalLM

_SEED = 0  # of what belongs to no tree; a digest names the draw, so any number will do


class Mixture(Target):
    """Answers a conversation by the target that its prompt names, or by one drawn for it.

    What belongs to no tree, such as a harmless request, is drawn by prompt and first probe.
    """

    class Options(Section):
        """The targets."""

        targets: tuple[WeightedTarget, ...] = Field(
            description="What system.target lists: name, options, weight, label."
        )

        @model_validator(mode="after")
        def _are_several_with_names_of_their_own(self) -> Self:
            labels = [own.called for own in self.targets]
            if len(labels) < 2:
                msg = f"targets must be at least two, got {len(labels)}; write one without a list"
                raise ValueError(msg)
            twice = next((own for own in labels if labels.count(own) > 1), None)
            if twice is not None:
                msg = f"targets must differ in label, got '{twice}' twice; give one 'label: NAME'"
                raise ValueError(msg)
            if "mixture" in {own.name for own in self.targets}:
                msg = "targets must each be one target, got a list in the list; write one list"
                raise ValueError(msg)
            return self

    options: Options

    def __init__(self, options: Options, *, surroundings: Surroundings) -> None:
        super().__init__(options, surroundings=surroundings)
        self._parts: dict[str, Target] = {}
        models: dict[Any, LanguageModel] = {}
        for own in options.targets:
            found = find("target", own)
            # Several system prompts of one model need its weights once.
            kind = str(found.options.model_dump(include={*LOADING}))
            near = replace(surroundings, language_model=models.get(kind))
            self._parts[own.called] = part = found.build(surroundings=near)
            if isinstance(part, CausalLM):
                models[kind] = part.language_model
        places = {part.works_on for part in self._parts.values()}
        # Where its first part that must not be disturbed works.
        self.works_on = next((p for p in ("gpu", "cpu") if p in places), "elsewhere")

    @property
    def vocabulary(self) -> str:  # type: ignore[override]
        """That of its local models, which have the weights of ``models.target`` in common."""
        return next(filter(None, (part.vocabulary for part in self._parts.values())), "")

    @property
    def language_models(self) -> tuple[LanguageModel, ...]:
        """Those of its parts, of which several may share one."""
        every = (model for part in self._parts.values() for model in part.language_models)
        return tuple({id(model): model for model in every}.values())

    @property
    def can_score(self) -> bool:  # type: ignore[override]
        """True where all parts give log-probabilities."""
        return all(part.can_score for part in self._parts.values())

    @property
    def weights(self) -> Mapping[str, float]:
        """The shares of the parts by name."""
        total = sum(own.weight for own in self.options.targets)
        return {own.called: own.weight / total for own in self.options.targets}

    def digest(self) -> str:
        """A digest of the parts' digests and weights."""
        parts = {name: part.digest() for name, part in self._parts.items()}
        return record_digest(["mixture", parts, dict(self.weights)])

    def respond(
        self,
        conversations: Sequence[Conversation],
        keys: Sequence[Sequence[bytes]],
        generation: GenerationConfiguration,
        *,
        tokens_per_batch: int = 16384,
    ) -> list[Outcome]:
        """The parts' outcomes; where a part can make no call, its own conversations fail.

        Raises TargetError if no part that was asked can make a call.
        """
        found: dict[int, Outcome] = {}
        errors: list[TargetError] = []
        asked = self._places_by_part(conversations)
        for name, own in asked.items():
            try:
                answers = checked_outcomes(
                    self._parts[name],
                    [conversations[at] for at in own],
                    [keys[at] for at in own],
                    generation=generation,
                    tokens_per_batch=tokens_per_batch,
                )
            except TargetError as error:
                errors.append(error)
                answers = [Failure(f"{name}: {type(error).__name__}: {error}")] * len(own)
            found |= zip(own, answers, strict=True)
        if errors and len(errors) == len(asked):
            raise errors[0]
        return [self._drop_partial_logprobs(found[at]) for at in range(len(conversations))]

    def remembering(self, max_bytes: int, *, is_bf16: bool = False) -> AbstractContextManager[None]:
        """The scopes of all parts, one for those that share a model."""
        each = {id(getattr(own, "language_model", own)): own for own in self._parts.values()}
        return _within(each.values(), lambda own: own.remembering(max_bytes, is_bf16=is_bf16))

    @property
    def account(self) -> str:
        """The account of the parts that count."""
        return next(filter(None, (part.account for part in self._parts.values())), "")

    def account_for(self, account: str) -> AbstractContextManager[None]:
        """The scopes of all parts."""
        return _within(self._parts.values(), lambda own: own.account_for(account))

    def evaluating(self) -> AbstractContextManager[None]:
        """The scopes of all parts."""
        return _within(self._parts.values(), lambda own: own.evaluating())

    def figures(self) -> Mapping[str, float]:
        """Sums over the parts that count; each part's waiting time under its own name."""
        sums: dict[str, float] = {}
        for name, part in self._parts.items():
            for key, value in part.figures().items():
                own = f"{key}_{name}" if key.startswith("latency") else key
                sums[own] = sums.get(own, 0.0) + value
        return sums

    def spelled(self) -> str:
        """The names of the parts."""
        return ", ".join(f"{part.spelled() or name}" for name, part in self._parts.items())

    def _places_by_part(self, conversations: Sequence[Conversation]) -> dict[str, list[int]]:
        """The places of the conversations of each part that has any, by its name."""
        shares: dict[str, list[int]] = {name: [] for name in self._parts}
        for at, conversation in enumerate(conversations):
            shares[self._part_of(conversation)].append(at)
        return {name: own for name, own in shares.items() if own}

    def _drop_partial_logprobs(self, outcome: Outcome) -> Outcome:
        """The outcome, without log-probabilities that only some parts give."""
        if isinstance(outcome, Failure) or self.can_score:
            return outcome
        return replace(outcome, probe_logprobs=())

    def _part_of(self, conversation: Conversation) -> str:
        name = conversation.prompt.metadata.get(LED_AGAINST)
        if name in self._parts:
            return str(name)
        first = next((m.text for m in conversation.messages if m.role == "user"), "")
        key = derive_key(_SEED, "target", conversation.prompt.prompt_id, first)
        return drawn_target(self.weights, key)


@contextmanager
def _within(
    parts: Iterable[Target], scope: Callable[[Target], AbstractContextManager[None]]
) -> Iterator[None]:
    with ExitStack() as stack:
        for part in parts:
            stack.enter_context(scope(part))
        yield
