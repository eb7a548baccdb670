"""A local causal language model as target: weights, tokenizer and the format of its turns."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal, Self

from astra_core.config import GenerationConfiguration, Section, SystemConfiguration
from astra_core.conversation import Conversation
from astra_core.errors import ConfigurationError
from astra_core.models.chat_format import Rendering, SeparatorFormat
from astra_core.models.language_model import Continuations, LanguageModel, Utterance
from astra_core.models.pretrained import weights_digest
from astra_core.target import Answer, Heard, Outcome, Reply, Surroundings, Target, Usage


class CausalLM(Target):
    """The model in the folder of ``models.target``.

    Attributes:
        language_model: What reads and speaks.
        format: How a conversation becomes its ids.
    """

    can_score = True

    class Options(Section):
        """A model whose turns are joined by ``system.separator``."""

    options: Options

    def __init__(self, options: Options, *, surroundings: Surroundings) -> None:
        super().__init__(options, surroundings=surroundings)
        self.language_model = surroundings.language_model or _loaded(surroundings)
        self.format = SeparatorFormat(self.language_model)
        self._weights = "" if surroundings.folder is None else weights_digest(surroundings.folder)

    @classmethod
    def of(cls, language_model: LanguageModel, config: SystemConfiguration) -> Self:
        """This model, with the default options."""
        surroundings = Surroundings(config, language_model=language_model)
        return cls(cls.Options(), surroundings=surroundings)

    @property
    def works_on(self) -> Literal["cpu", "gpu", "elsewhere"]:  # type: ignore[override]
        """Where its weights are."""
        return "cpu" if self.language_model.device.type == "cpu" else "gpu"

    @property
    def vocabulary(self) -> str:  # type: ignore[override]
        """Of its tokenizer."""
        return self.language_model.vocabulary

    def digest(self) -> str:
        """Of its weights and tokenizer; empty for a model that was never a folder."""
        return self._weights

    def holds(self, folder: Path) -> bool:
        """True if its model is the one in this folder."""
        return bool(self._weights) and self._weights == weights_digest(folder)

    def heard(self, conversation: Conversation, generation: GenerationConfiguration) -> Rendering:
        """What it reads to answer the last message, the oldest tokens cut off to fit."""
        return self.format.rendering(conversation, self._limit(generation))

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

    def read(
        self,
        conversations: Sequence[Conversation],
        generation: GenerationConfiguration,
        *,
        tokens_per_batch: int = 16384,
    ) -> None:
        """Reads what the probes will follow into the cache, where nothing will be cut off."""
        limit = self._limit(generation)
        contexts = [self.format.prefix(conversation) for conversation in conversations]
        short = [context for context in contexts if len(context) < limit]
        if short:
            self.language_model.read(short, tokens_per_batch=tokens_per_batch)

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
        return Reply(said.text, said.token_ids, self.vocabulary, reason)


def as_target(target: Target | LanguageModel, config: SystemConfiguration) -> Target:
    """The target itself, or a language model as one."""
    return CausalLM.of(target, config) if isinstance(target, LanguageModel) else target


def speaker_of(target: Target) -> LanguageModel | None:
    """The language model that speaks for a local target; None for any other."""
    return target.language_model if isinstance(target, CausalLM) else None


def _loaded(surroundings: Surroundings) -> LanguageModel:
    if surroundings.folder is None:
        msg = (
            "system.target 'causal_lm' must have the weights of models.target, got none; "
            "name a folder there or another target"
        )
        raise ConfigurationError(msg)
    return LanguageModel.load(
        surroundings.folder,
        separator=surroundings.config.separator,
        device=surroundings.device,
        machine=surroundings.machine,
    )
