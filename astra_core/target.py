"""A target is the system under attack; it reads conversations as text and answers them.

A local model, an endpoint, a program and a script all have this interface. Ids are passed beside
the text if a local model sampled them, so that a model with the same ids need not encode it again.
``astra_parts.testing.check_target`` checks everything that is promised here.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import astuple, dataclass, replace
from itertools import accumulate
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from astra_core.config import GenerationConfiguration, Section, SystemConfiguration
from astra_core.conversation import Conversation, Message
from astra_core.errors import TargetError
from astra_core.extensions.calls import describe, figures_of, plugin_call, refuse
from astra_core.extensions.plugin_class import Plugin
from astra_core.rollout import Failure, FinishReason, Prompt
from astra_core.rollout.metadata import problem_of
from astra_core.seeding import derive_key, generator

if TYPE_CHECKING:
    import torch

    from astra_core.engine.machine import Machine
    from astra_core.models.language_model import LanguageModel


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply of a target.

    Attributes:
        token_ids: The ids as sampled, the end token and any reasoning included; empty if only text
            came back.
        vocabulary: Digest of the tokenizer whose ids these are; empty without ids.
        finish_reason: Why it ended: by itself, at the length limit, or cut by a filter.
    """

    text: str
    token_ids: tuple[int, ...] = ()
    vocabulary: str = ""
    finish_reason: FinishReason = "stop"
    thinking: str = ""

    def message(self) -> Message:
        """The reply as a message of the assistant."""
        return Message("assistant", self.text, self.token_ids, self.vocabulary, self.thinking)


@dataclass(frozen=True, slots=True)
class Usage:
    """The cost of an answer.

    ``seconds``: seconds waited for it.
    """

    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    seconds: float = 0.0
    cost: float = 0.0

    def __add__(self, other: "Usage") -> "Usage":
        """The sum of both."""
        return Usage(*map(add, astuple(self), astuple(other)))


@dataclass(frozen=True, slots=True)
class Heard:
    """The ids that a local model read when it answered.

    Attributes:
        context_ids: The ids before the probe, older ones cut off to fit.
        probe_ids: The probe itself, without what the format puts after it.
    """

    context_ids: tuple[int, ...]
    probe_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """A target's answer to one probe.

    Attributes:
        replies: One per key, in order; independent of each other.
        probe_logprobs: Log-probability of each token of the probe given the conversation before
            it, nats; empty if the target gives none.
        heard: The ids that a local model read; None for any other target.
    """

    replies: tuple[Reply, ...]
    probe_logprobs: tuple[float, ...] = ()
    usage: Usage = Usage()
    heard: Heard | None = None


Outcome = Answer | Failure
"""The outcome of one call."""
LED_AGAINST = "system_target"
"""The column of a prompt with the name of the one of several targets that its tree is led against.
"""


def led_against(prompt: Prompt, name: str) -> Prompt:
    """The prompt, whose tree is led against the target of this name."""
    return replace(prompt, metadata={**prompt.metadata, LED_AGAINST: name})


def drawn_target(weights: Mapping[str, float], key: bytes) -> str:
    """The name that a key draws, by weights that sum to 1."""
    number, names = float(generator(key).random()), list(weights)
    ends = accumulate(weights.values())
    return next((name for name, end in zip(names, ends, strict=True) if number < end), names[-1])


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a target may need to know about its run.

    Attributes:
        folder: The Hugging Face folder of ``models.target``; None if it has no weights.
        machine: The properties of the machine; None for this one.
        beside: Folders of the models that are in memory beside it.
    """

    config: SystemConfiguration
    folder: Path | None = None
    device: "torch.device | str" = "cpu"
    machine: "Machine | None" = None
    language_model: "LanguageModel | None" = None
    beside: tuple[Path, ...] = ()


class Target(Plugin):
    """The system under attack, as sampler, reward and evaluation use it."""

    works_on: Literal["cpu", "gpu", "elsewhere"] = "elsewhere"
    """Where the work is done: a scorer on another processor works meanwhile."""

    can_score: bool = False
    """True if its answers give log-probabilities of the probe, for rewards that ask for them."""

    has_weights: bool = False
    """True for a target that is made from the folder of ``models.target``."""

    vocabulary: str = ""
    """Digest of the tokenizer whose ids its replies have; empty if it gives only text."""

    def __init__(self, options: Section | None = None, *, surroundings: Surroundings) -> None:
        super().__init__(options)
        self.surroundings = surroundings

    @property
    def weights(self) -> Mapping[str, float]:
        """Weights of several targets by name, which sum to 1; empty for a single one."""
        return {}

    @property
    def language_models(self) -> tuple["LanguageModel", ...]:
        """The local models that speak for it, each once; empty for one without."""
        return ()

    @abstractmethod
    def digest(self) -> str:
        """A digest of all that its replies depend on; equal digests make figures comparable."""

    @abstractmethod
    def respond(
        self,
        conversations: Sequence[Conversation],
        keys: Sequence[Sequence[bytes]],
        generation: GenerationConfiguration,
        *,
        tokens_per_batch: int = 16384,
    ) -> list[Outcome]:
        """One outcome per conversation, in order: ``len(keys[i])`` replies to its last message.

        The same conversation and key give the same reply, whatever else is asked for, as far as the
        target is deterministic. A failed call affects only its own conversation.

        ``tokens_per_batch``: bounds the memory of one pass of a local model.

        Raises TargetError if no call can be made at all, so all of these turns have failed.
        """

    def draw(self, prompts: Sequence[Prompt], *, seed: int, iteration: int) -> tuple[Prompt, ...]:
        """The prompts of a training's iteration, each led against one of several targets.

        The draw depends on the seed, the iteration and the prompt alone, so that all runs of a
        prompt, which algorithms compare, meet the same target.
        """
        if not self.weights:
            return tuple(prompts)
        keys = [derive_key(seed, "target", iteration, own.prompt_id) for own in prompts]
        return tuple(
            led_against(own, drawn_target(self.weights, key))
            for own, key in zip(prompts, keys, strict=True)
        )

    def remembering(self, max_bytes: int, *, is_bf16: bool = False) -> AbstractContextManager[None]:
        """A scope of one rollout, in which it may cache up to ``max_bytes`` of what it reads."""
        del max_bytes, is_bf16
        return nullcontext()

    @property
    def account(self) -> str:
        """The account under which its replies are counted now; empty if they are not counted."""
        return ""

    def account_for(self, account: str) -> AbstractContextManager[None]:
        """A scope whose replies ``figures`` counts under this name, also in another process."""
        del account
        return nullcontext()

    def evaluating(self) -> AbstractContextManager[None]:
        """A scope in which it may spend what a budget keeps for evaluations."""
        return nullcontext()

    def figures(self) -> Mapping[str, float]:
        """What the account has used, such as ``calls`` and ``cost``; empty if nothing counts."""
        return {}

    def spelled(self) -> str:
        """A name for people; empty if there is only the digest."""
        return ""


def checked_digest(target: Target) -> str:
    """The target's digest. Raises PluginError if it failed, or is no text."""
    with plugin_call("target", target, "digest"):
        given: Any = target.digest()
    if not isinstance(given, str):
        refuse("target", target, "a text as digest", got=describe(given))
    return given


def checked_figures(target: Target) -> dict[str, float]:
    """What the target's account has used. Raises PluginError if it failed, or gave no numbers."""
    with plugin_call("target", target, "figures"):
        given = target.figures()
    return figures_of("target", target, given, action="figures")


def checked_outcomes(
    target: Target,
    conversations: Sequence[Conversation],
    keys: Sequence[Sequence[bytes]],
    *,
    generation: GenerationConfiguration,
    tokens_per_batch: int,
) -> list[Outcome]:
    """What ``target.respond`` gives: for each conversation a failure, or one reply per key.

    Raises TargetError if no call could be made; PluginError if the target failed, or gave something
    else.
    """
    # A TargetError's own words are the reason why these turns failed.
    with plugin_call("target", target, "respond", passes=(TargetError,)):
        given: Any = target.respond(
            conversations, keys, generation, tokens_per_batch=tokens_per_batch
        )
    if not isinstance(given, Sequence) or isinstance(given, str):
        refuse("target", target, "a list of outcomes", got=describe(given))
    if len(given) != len(keys):
        got = f"{len(given)} for {len(keys)}"
        refuse("target", target, "one outcome per conversation", got=got)
    for outcome, own in zip(given, keys, strict=True):
        if problem := _problem_of(outcome, num_replies=len(own)):
            refuse("target", target, "an Answer with one Reply per key, or a Failure", got=problem)
    return list(given)


def _problem_of(outcome: Any, *, num_replies: int) -> str:
    """What is wrong with an outcome, without quoting it; empty if nothing is."""
    if isinstance(outcome, Failure):
        return ""
    replies: Any = outcome.replies if isinstance(outcome, Answer) else None
    if not isinstance(replies, Sequence) or isinstance(replies, str):
        return describe(outcome if replies is None else replies)
    if len(replies) != num_replies:
        return f"{len(replies)} replies for {num_replies} keys"
    return next(filter(None, map(_problem_with, replies)), "")


def _problem_with(reply: Any) -> str:
    if not isinstance(reply, Reply):
        return f"a reply that is {describe(reply)}"
    text: Any = reply.text
    if problem := problem_of(text) if isinstance(text, str) else describe(text):
        return f"a text that is {problem}"
    known = reply.finish_reason in get_args(FinishReason)
    return "" if known else "a finish_reason that is none"
