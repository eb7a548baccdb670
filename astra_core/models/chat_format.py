"""How a conversation becomes the ids that one local model reads.

``SeparatorFormat`` joins what was said by the separator: the seed prompt first, then every message.
Ids that were sampled are spliced in where they mean the same to this model, never encoded again.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from astra_core.conversation import Conversation
from astra_core.models.language_model import LanguageModel

Ids = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Rendering:
    """What a model reads before it speaks.

    Attributes:
        token_ids: Never empty.
        truncated_tokens: Older tokens cut off to fit.
        last: Where in ``token_ids`` the last message begins, and where its own ids end.
    """

    token_ids: Ids
    truncated_tokens: int
    last: tuple[int, int]


class Thought(NamedTuple):
    """What a model that reasons before it answers has said."""

    thinking: str
    text: str
    visible_ids: Ids


class ChatFormat(ABC):
    """Renders conversations for one side of them."""

    def __init__(self, model: LanguageModel) -> None:
        self.model = model

    @abstractmethod
    def rendering(self, conversation: Conversation, limit: int) -> Rendering:
        """What the model reads to say the next message, at most ``limit`` tokens."""

    @abstractmethod
    def prefix(self, conversation: Conversation) -> Ids:
        """What it will have read when the next message begins, whichever side says it."""

    @abstractmethod
    def written(self, text: str) -> Ids:
        """The ids that the model would have sampled to say what someone has written."""

    def thought(self, token_ids: Sequence[int]) -> Thought:
        """What was sampled, as others hear it: without a span of reasoning, if there is one."""
        ids = tuple(token_ids)
        return Thought("", self.model.decode(ids), ids)


class SeparatorFormat(ChatFormat):
    """Utterances with a separator after each, the tokenizer's first token before all.

    Args:
        model: Whose ids they are.
        told: What is read before every conversation instead of the first token: an instruction.
    """

    def __init__(self, model: LanguageModel, told: Ids = ()) -> None:
        super().__init__(model)
        self.opening = told or model.opening_ids
        self.is_told = bool(told)

    def rendering(self, conversation: Conversation, limit: int) -> Rendering:
        """The instruction, and of the conversation the newest tokens."""
        said = self._said(conversation)
        whole = tuple(token for own, _ in said for token in own)
        if self.is_told:
            room = limit - len(self.opening)
            ids = self.opening + whole[-room:]
        else:
            room, whole = limit, self.opening + whole
            ids = whole[-limit:]
        last, num_added = said[-1]
        start = max(len(ids) - len(last), 1)
        return Rendering(ids, max(len(whole) - room, 0), (start, max(len(ids) - num_added, start)))

    def prefix(self, conversation: Conversation) -> Ids:
        """All that was said so far."""
        said = tuple(token for own, _ in self._said(conversation) for token in own)
        return self.opening + said

    def written(self, text: str) -> Ids:
        """The text closed by the separator."""
        return self.model.closed(self.model.encode(text))

    def _said(self, conversation: Conversation) -> list[tuple[Ids, int]]:
        """Every utterance closed, and how many tokens were added to what was sampled."""
        model = self.model
        found = [(model.closed(model.encode(conversation.prompt.text)), 0)]
        for message in conversation.messages:
            sampled = () if message.thinking else message.ids_for(model.vocabulary)
            closed = model.closed(sampled or model.encode(message.text))
            found.append((closed, max(len(closed) - len(sampled), 0) if sampled else 0))
        return found
