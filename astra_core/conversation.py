"""A conversation as text: what travels to targets, judges and people.

Ids stay with the local model that sampled or read them: a message may carry them beside its text,
so that nothing that was sampled is ever tokenised again.
"""

from dataclasses import dataclass, field, replace
from typing import Literal, Self

from astra_core.rollout import Prompt

Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class Message:
    """What one side said; two are equal if they say the same, whatever the ids.

    Attributes:
        role: As the target sees it: the attacker is the user.
        text: What a user would see, without any reasoning span.
        token_ids: As sampled; empty where only text is known.
        vocabulary: Digest of the tokenizer whose ids these are; empty without ids.
        thinking: The reasoning before it, which nobody else reads; the ids hold it too.
    """

    role: Role
    text: str
    token_ids: tuple[int, ...] = field(default=(), compare=False)
    vocabulary: str = field(default="", compare=False)
    thinking: str = field(default="", compare=False)

    def ids_for(self, vocabulary: str) -> tuple[int, ...]:
        """The ids as sampled if they mean the same to this tokenizer, otherwise none."""
        return self.token_ids if self.vocabulary == vocabulary else ()


@dataclass(frozen=True, slots=True)
class Conversation:
    """A seed prompt and what was said since, oldest message first.

    Attributes:
        prompt: Opened it.
        messages: Attacker and target in turn. Neither the target's system prompt nor the seed
            prompt is among them: what a side reads of those is its own format's affair.
    """

    prompt: Prompt
    messages: tuple[Message, ...] = ()

    @property
    def goal(self) -> str:
        """What the attacker is after, from the prompt's ``goal`` column; empty for none."""
        return self._told("goal")

    @property
    def category(self) -> str:
        """Of the prompt, from its ``category`` column; empty for none."""
        return self._told("category")

    @property
    def reference_reply(self) -> str:
        """An example of a reply that fails, from the ``reference_reply`` column; empty for none."""
        return self._told("reference_reply")

    @property
    def num_turns(self) -> int:
        """How often the target has answered."""
        return sum(message.role == "assistant" for message in self.messages)

    def said(self, *messages: Message) -> Self:
        """The conversation with these messages at its end."""
        return replace(self, messages=(*self.messages, *messages))

    def _told(self, name: str) -> str:
        value = self.prompt.metadata.get(name)
        return "" if value is None else str(value)
