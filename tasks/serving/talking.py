"""A language model behind a server: messages or text in, sampled choices out.

A model runs one request at a time, whatever the number of clients. The samples depend only on the
request: the seed, the text and the number of the choice determine its random numbers.
"""

import secrets
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from astra_core.errors import ConfigurationError
from tasks.serving.wire import RefusalError

if TYPE_CHECKING:
    from astra_core.config import AttackerConfiguration, GenerationConfiguration
    from astra_core.conversation import Conversation
    from astra_core.models.chat_format import ChatFormat
    from astra_core.models.language_model import LanguageModel
    from astra_core.models.utterances import Utterance

Message = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Wanted:
    """How choices are sampled.

    ``seed``: the same seed and text give the same choices; None draws a seed.
    """

    generation: "GenerationConfiguration"
    count: int = 1
    seed: int | None = None
    stop: tuple[str, ...] = ()
    top: int = 0


@dataclass(frozen=True, slots=True)
class SampledText:
    """One sampled text.

    Attributes:
        logprobs: Log-probability of each token under the unmodified model, nats.
        top: The likeliest tokens at each position with their log-probabilities; () if not asked.
    """

    text: str
    tokens: tuple[str, ...]
    logprobs: tuple[float, ...]
    top: tuple[tuple[tuple[str, float], ...], ...]
    finish: Literal["stop", "length"]


class ServedModel:
    """A model that answers requests."""

    def __init__(
        self, model: "LanguageModel", *, fingerprint: str, attacker: "ChatFormat | None" = None
    ) -> None:
        """``attacker``: how it reads a chat in which it attacks; None for any other model."""
        self.model = model
        self.fingerprint = fingerprint
        self._attacker = attacker
        self._lock = threading.Lock()
        add_template_ends(model)

    @classmethod
    def load(
        cls, folder: Path, *, separator: str | None, is_attacker: bool = False
    ) -> "ServedModel":
        """The speaker of a Hugging Face folder, as an attacker in the format of its training.

        Raises ConfigurationError if the folder cannot be loaded.
        """
        from astra_core.files import folder_digest
        from astra_core.models.attacker_format import attacker_format
        from astra_core.models.language_model import LanguageModel

        digest = folder_digest(folder, keep=lambda path: path.suffix == ".safetensors")
        model = LanguageModel.load(folder, separator=separator)
        reader = attacker_format(model, attacker_in(folder)) if is_attacker else None
        return cls(model, fingerprint=f"astra-{digest[:16]}", attacker=reader)

    def heard(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """The ids that the model reads of a chat, with the opening of its own answer.

        Raises RefusalError if an attacker is given a chat that is none of a target's.
        """
        if self._attacker is None:
            return heard(self.model, messages)
        return self._attacker.rendering(conversation_of(messages), sys.maxsize).token_ids

    def text_ids(self, prompt: str) -> tuple[int, ...]:
        """The ids that the model reads of a plain text, which it continues."""
        return (*self.model.opening_ids, *self.model.encode(prompt)) or self.model.end_ids[:1]

    def room(self, context: Sequence[int]) -> int:
        """How many tokens may follow a context."""
        return self.model.max_positions - len(context)

    def choices(self, context: tuple[int, ...], wanted: Wanted) -> list[SampledText]:
        """The sampled choices after a context.

        Raises RefusalError if the context and the answer do not fit into what the model can read.
        """
        from astra_core.seeding import derive_key

        most = wanted.generation.max_new_tokens
        if self.room(context) < most:
            msg = (
                f"This model's maximum context length is {self.model.max_positions} tokens, got "
                f"{len(context)} in the request and {most} for the answer"
            )
            raise RefusalError(msg, param="messages", code="context_length_exceeded")
        seed = secrets.randbits(62) if wanted.seed is None else wanted.seed
        keys = [derive_key(seed, "served", context, number) for number in range(wanted.count)]
        with self._lock:
            (found,) = self.model.continuations([context], [keys], wanted.generation)
            return [self._choice(context, own, wanted) for own in found.utterances]

    def _choice(self, context: tuple[int, ...], own: "Utterance", wanted: Wanted) -> SampledText:
        ids = own.token_ids[:-1] if own.has_ended else own.token_ids
        hidden = 0
        if self._attacker is not None:
            # A target never hears an attacker's reasoning, which comes first.
            hidden = len(ids) - len(self._attacker.thought(ids).visible_ids)
            context, ids = (*context, *ids[:hidden]), ids[hidden:]
        text = self._decode(ids)
        at = min((text.index(word) for word in wanted.stop if word in text), default=None)
        if at is not None:
            lengths = range(len(ids) + 1)
            ids = ids[: next(n for n in lengths if len(self._decode(ids[:n])) > at) - 1]
            text = text[:at]
        has_ended = own.has_ended or at is not None
        return SampledText(
            text,
            tuple(self._decode((token,)) for token in ids),
            own.logprobs[hidden : hidden + len(ids)],
            self._likeliest(context, ids, wanted.top) if wanted.top else (),
            "stop" if has_ended else "length",
        )

    def _decode(self, ids: Sequence[int]) -> str:
        return str(self.model.tokenizer.decode(list(ids), skip_special_tokens=True))

    def _likeliest(
        self, context: tuple[int, ...], ids: Sequence[int], count: int
    ) -> tuple[tuple[tuple[str, float], ...], ...]:
        """The likeliest tokens at every position of an answer, from one further pass."""
        import torch

        if not ids:
            return ()
        whole = torch.tensor([[*context, *ids]], device=self.model.device)
        with torch.no_grad():
            logits = self.model.model(input_ids=whole).logits[0, len(context) - 1 : -1]
        values, places = logits.float().log_softmax(-1).topk(min(count, logits.shape[-1]))
        rows = zip(places.tolist(), values.tolist(), strict=True)
        return tuple(
            tuple((self._decode((token,)), value) for token, value in zip(*row, strict=True))
            for row in rows
        )


def attacker_in(folder: Path) -> "AttackerConfiguration":
    """How the trained attacker of a folder is told what to do.

    Raises ConfigurationError if the folder has several agents, who share no format.
    """
    from astra_core.agents import as_exported
    from astra_core.config import SystemConfiguration

    found = as_exported(SystemConfiguration(), folder)
    if found.roles:
        msg = (
            f"what --as-attacker serves must be one attacker, got the agents "
            f"{', '.join(found.roles)} in {folder}; leave the option out for such"
        )
        raise ConfigurationError(msg)
    return found.attacker


def conversation_of(messages: Sequence[Message]) -> "Conversation":
    """The conversation that an attacker's chat tells: the prompt, then its probes and the replies.

    Raises RefusalError unless users and assistants take turns, and a user speaks first and last.
    """
    from astra_core.conversation import Conversation, Message
    from astra_core.rollout import Prompt

    roles = [own["role"] for own in messages]
    if len(roles) % 2 == 0 or any(
        role != ("assistant" if turn % 2 else "user") for turn, role in enumerate(roles)
    ):
        msg = (
            f"messages must be the prompt (user), then the attacker's probes (assistant) and the "
            f"target's replies (user) in turn, got {', '.join(roles)}"
        )
        raise RefusalError(msg, param="messages", code="invalid_value")
    prompt, *said = (own["content"] for own in messages)
    turns = (Message("assistant" if turn % 2 else "user", text) for turn, text in enumerate(said))
    return Conversation(Prompt.of(prompt)).say(*turns)


def heard(model: "LanguageModel", messages: Sequence[Message]) -> tuple[int, ...]:
    """The ids that a model reads of a chat before it answers: by template, else by separators."""
    if model.tokenizer.chat_template:
        return model.encode(render(model, messages, opens_answer=True))
    texts = (model.as_text(own["content"]) for own in messages)
    said = (token for text in texts for token in model.closed_ids(model.encode(text)))
    return (*model.opening_ids, *said) or model.end_ids[:1]


def answer_ids(
    model: "LanguageModel", messages: Sequence[Message], answer: Message
) -> tuple[int, ...]:
    """The ids that the model would have sampled for an answer, with its end."""
    text = model.as_text(answer["content"])
    if not model.tokenizer.chat_template:
        return model.closed_ids(model.encode(text))
    before = render(model, messages, opens_answer=True)
    whole = render(model, [*messages, answer], opens_answer=False)
    ids = model.encode(whole[len(before) :] if whole.startswith(before) else text)
    end = next((place for place, token in enumerate(ids) if token in model.end_ids), None)
    return (*ids, *model.end_ids[:1]) if end is None else ids[: end + 1]


def render(model: "LanguageModel", messages: Sequence[Message], *, opens_answer: bool) -> str:
    """A chat in the model's own template.

    Raises RefusalError if the template rejects these messages.
    """
    from astra_core.models.chat_template import chat_text

    try:
        said = [{**own, "content": model.as_text(own["content"])} for own in messages]
        return chat_text(model.tokenizer, said, opens_answer=opens_answer)
    except Exception as error:  # noqa: BLE001 - templates raise what they like
        msg = f"the model's chat template refuses these messages ({type(error).__name__})"
        raise RefusalError(msg, param="messages", code="invalid_value") from None


def add_template_ends(model: "LanguageModel") -> None:
    """Lets sampling also end at the end tokens of a chat model's generation configuration."""
    if model.tokenizer.chat_template:
        ends = getattr(getattr(model.model, "generation_config", None), "eos_token_id", None)
        model.allow(ends=ends if isinstance(ends, list) else [ends])
