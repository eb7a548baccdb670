"""How a conversation becomes the ids that one local model reads.

``SeparatorFormat`` joins the seed prompt and every message by the separator. Sampled ids of the
same tokenizer are inserted as they are, never encoded again.
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
    """The ids that a model reads before it speaks.

    Attributes:
        token_ids: The ids; never empty.
        last: Where the last message begins in ``token_ids``, and where its own ids end.
    """

    token_ids: Ids
    truncated_tokens: int
    last: tuple[int, int]


class Thought(NamedTuple):
    """The answer of a model that reasons first, and its reasoning."""

    thinking: str
    text: str
    visible_ids: Ids


class ChatFormat(ABC):
    """Renders conversations for one side of them."""

    def __init__(self, model: LanguageModel) -> None:
        self.model = model

    @abstractmethod
    def rendering(self, conversation: Conversation, limit: int) -> Rendering:
        """The ids that the model reads before the next message, at most ``limit`` of them."""

    @abstractmethod
    def written_ids(self, text: str) -> Ids:
        """The ids that the model would have sampled for a written text."""

    def thought(self, token_ids: Sequence[int]) -> Thought:
        """The sampled text as others read it, without a span of reasoning."""
        ids = tuple(token_ids)
        return Thought("", self.model.decode(ids), ids)


class SeparatorFormat(ChatFormat):
    """Utterances with a separator after each, the tokenizer's first token before all.

    ``told``: an instruction that is read before every conversation instead of the first token.
    """

    def __init__(self, model: LanguageModel, told: Ids = ()) -> None:
        super().__init__(model)
        self.opening = told or model.opening_ids

    def rendering(self, conversation: Conversation, limit: int) -> Rendering:
        """What opens every conversation, and the newest tokens of this one."""
        said = self._closed_utterances(conversation)
        whole = tuple(token for own, _ in said for token in own)
        opening = self.opening if limit > len(self.opening) else ()
        ids = opening + whole[len(opening) - limit :]
        cut = len(self.opening) + len(whole) - len(ids)
        last, num_added = said[-1]
        start = max(len(ids) - len(last), len(opening), 1)
        return Rendering(ids, cut, (start, max(len(ids) - num_added, start)))

    def written_ids(self, text: str) -> Ids:
        """The text closed by the separator."""
        return self.model.closed_ids(self.model.encode(self.model.as_text(text)))

    def _closed_utterances(self, conversation: Conversation) -> list[tuple[Ids, int]]:
        """Every utterance closed, and how many tokens were added to what was sampled."""
        model = self.model
        found = [(self.written_ids(conversation.prompt.text), 0)]
        for message in conversation.messages:
            sampled = (
                () if message.thinking else model.readable_ids(message.ids_for(model.vocabulary))
            )
            closed = model.closed_ids(sampled) if sampled else self.written_ids(message.text)
            found.append((closed, max(len(closed) - len(sampled), 0) if sampled else 0))
        return found
