"""A local causal language model as target: weights, tokenizer and the format of its turns."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from astra_core.config import GenerationConfiguration, Section, SystemConfiguration
from astra_core.conversation import Conversation
from astra_core.errors import ConfigurationError
from astra_core.files import record_digest
from astra_core.models.chat_format import ChatFormat, Rendering, SeparatorFormat
from astra_core.models.language_model import LanguageModel
from astra_core.models.pretrained import Dtype, weights_digest
from astra_core.models.template_format import TemplateFormat
from astra_core.models.utterances import Continuations, Utterance
from astra_core.target import Answer, Heard, Outcome, Reply, Surroundings, Target, Usage

LOADING = frozenset({"dtype", "device_map"})
"""The options that decide how the weights are loaded; the others need no model of their own."""


class CausalLM(Target):
    """The model in the folder of ``models.target``."""

    can_score = True
    has_weights = True

    class Options(Section):
        """How its turns become tokens, and its system prompt."""

        format: Literal["separator", "template", "auto"] = Field(
            "separator",
            description="Turns joined by system.separator, or the tokenizer's chat template; auto "
            "takes the template where there is one.",
        )
        system_prompt: str | None = Field(
            None, min_length=1, description="template: the target's system prompt."
        )
        seed: Literal["hidden", "opening"] = Field(
            "hidden",
            description="template: the seed prompt is left out, or begins the first message.",
        )
        think_tags: tuple[str, str] = Field(
            ("<think>", "</think>"),
            description="template: tags of reasoning, which is neither judged nor passed on.",
        )
        dtype: Dtype = Field(
            "float32", description="Type of the weights; half takes half the memory."
        )
        device_map: Literal["auto", "balanced", "balanced_low_0", "sequential"] | None = Field(
            None,
            description="How accelerate spreads the weights over devices; null: machine.device.",
        )

        @model_validator(mode="after")
        def _are_used(self) -> Self:
            if self.format == "separator" and self.system_prompt is not None:
                msg = "system_prompt must be null when format is 'separator', which has no roles"
                raise ValueError(msg)
            if self.device_map is not None and find_spec("accelerate") is None:
                msg = "device_map must be null without the package accelerate; install it"
                raise ValueError(msg)
            return self

    options: Options

    def __init__(self, options: Options, *, surroundings: Surroundings) -> None:
        super().__init__(options, surroundings=surroundings)
        self.language_model = surroundings.language_model or _load(surroundings, options)
        self.format = _format_of(self.language_model, options)
        self._weights = "" if surroundings.folder is None else weights_digest(surroundings.folder)

    @classmethod
    def of(cls, language_model: LanguageModel, config: SystemConfiguration) -> Self:
        """This model, with the default options."""
        surroundings = Surroundings(config, language_model=language_model)
        return cls(cls.Options(), surroundings=surroundings)

    @property
    def works_on(self) -> Literal["cpu", "gpu", "elsewhere"]:  # type: ignore[override]
        """The place of its weights."""
        return "cpu" if self.language_model.device.type == "cpu" else "gpu"

    @property
    def vocabulary(self) -> str:  # type: ignore[override]
        """The digest of its tokenizer."""
        return self.language_model.vocabulary

    @property
    def language_models(self) -> tuple[LanguageModel, ...]:
        """Its one model."""
        return (self.language_model,)

    def digest(self) -> str:
        """A digest of weights, tokenizer and options; empty for a model that was never a folder."""
        return self.digest_of(self._weights, self.options)

    @classmethod
    def digest_of(cls, weights: str, options: Options) -> str:
        """The digest of a target with weights of this digest, which need not be loaded."""
        if not weights or options == cls.Options():
            return weights
        return record_digest([weights, options.model_dump(mode="json")])

    def holds(self, folder: Path) -> bool:
        """True if its model is the one in this folder, with weights of that type on one device."""
        if not self._weights or not _is_plain(self.options):
            return False
        return self._weights == weights_digest(folder)

    def heard(self, conversation: Conversation, generation: GenerationConfiguration) -> Rendering:
        """The ids that it reads to answer the last message, the oldest cut off to fit."""
        return self.format.rendering(conversation, self._limit(generation))

    def spoken(self, text: str, generation: GenerationConfiguration) -> tuple[int, ...]:
        """The ids by which it would say a text; one that is cut at its limit has no end."""
        return self.format.written_ids(text)[: generation.max_new_tokens]

    def respond(
        self,
        conversations: Sequence[Conversation],
        keys: Sequence[Sequence[bytes]],
        generation: GenerationConfiguration,
        *,
        tokens_per_batch: int = 16384,
    ) -> list[Outcome]:
        """The replies, and from the same pass the log-probabilities of the probes."""
        read = [self.heard(conversation, generation) for conversation in conversations]
        found = self.language_model.continuations(
            [own.token_ids for own in read],
            keys,
            generation,
            suffix_lengths=[len(own.token_ids) - own.last[0] for own in read],
            tokens_per_batch=tokens_per_batch,
        )
        return [self._answer(own, said) for own, said in zip(read, found, strict=True)]

    def remembering(self, max_bytes: int, *, is_bf16: bool = False) -> AbstractContextManager[None]:
        """See ``LanguageModel.remembering``."""
        return self.language_model.remembering(max_bytes, is_bf16=is_bf16)

    def _limit(self, generation: GenerationConfiguration) -> int:
        most = self.surroundings.config.max_context_tokens
        return max(1, min(most, self.language_model.max_positions - generation.max_new_tokens))

    def _answer(self, read: Rendering, found: Continuations) -> Answer:
        start, stop = read.last
        usage = Usage(
            calls=1,
            tokens_in=len(read.token_ids),
            tokens_out=sum(len(own.token_ids) for own in found.utterances),
        )
        return Answer(
            tuple(self._reply(own) for own in found.utterances),
            found.suffix_logprobs[: stop - start],
            usage,
            Heard(read.token_ids[:start], read.token_ids[start:stop]),
        )

    def _reply(self, said: Utterance) -> Reply:
        reason: Literal["stop", "length"] = "stop" if said.has_ended else "length"
        if not isinstance(self.format, TemplateFormat):
            return Reply(said.text, said.token_ids, self.vocabulary, reason)
        own = self.format.thought(said.token_ids)
        return Reply(own.text, said.token_ids, self.vocabulary, reason, own.thinking)


def as_target(target: Target | LanguageModel, config: SystemConfiguration) -> Target:
    """The target itself, or a language model as one."""
    return CausalLM.of(target, config) if isinstance(target, LanguageModel) else target


def speaker_of(target: Target) -> LanguageModel | None:
    """The language model that speaks for a local target; None for any other."""
    return target.language_model if isinstance(target, CausalLM) else None


def _format_of(model: LanguageModel, options: CausalLM.Options) -> ChatFormat:
    has_template = bool(model.tokenizer.chat_template)
    if options.format == "template" or (options.format == "auto" and has_template):
        return TemplateFormat(
            model, system=options.system_prompt, seed=options.seed, tags=options.think_tags
        )
    return SeparatorFormat(model)


def _is_plain(options: CausalLM.Options) -> bool:
    """Whether its weights are of the type and on the device of the attacker's."""
    return options.dtype == "float32" and options.device_map is None


def _load(surroundings: Surroundings, options: CausalLM.Options) -> LanguageModel:
    if surroundings.folder is None:
        msg = (
            "system.target 'causal_lm' must have the weights of models.target, got none; "
            "run the models stage, or name another target"
        )
        raise ConfigurationError(msg)
    return LanguageModel.load(
        surroundings.folder,
        separator=surroundings.config.separator,
        device=surroundings.device,
        machine=surroundings.machine,
        dtype=options.dtype,
        device_map=options.device_map,
        # Half weights, or weights on several devices, are nobody else's.
        beside=surroundings.beside if _is_plain(options) else (),
    )
