"""A conversation as text, in the form that targets, judges and people read.

Ids stay with the local model that sampled or read them: a message may carry them beside its text,
so that nothing that was sampled is ever tokenised again.
"""

from dataclasses import dataclass, field, replace
from typing import Literal, Self

from astra_core.rollout import Prompt
from astra_core.rollout.metadata import CONTEXT

Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class Message:
    """What one side said; two are equal if they say the same, whatever the ids.

    Attributes:
        role: As the target sees it: the attacker is the user.
        text: What a user would see, without any reasoning span.
        token_ids: As sampled; empty where only text is known.
        vocabulary: Digest of the tokenizer whose ids these are; empty without ids.
        thinking: The reasoning before it, which the other side does not read; it is in the ids too.
    """

    role: Role
    text: str
    token_ids: tuple[int, ...] = field(default=(), compare=False)
    vocabulary: str = field(default="", compare=False)
    thinking: str = field(default="", compare=False)

    def ids_for(self, vocabulary: str) -> tuple[int, ...]:
        """The ids as sampled, if they are of this tokenizer; otherwise none."""
        return self.token_ids if self.vocabulary == vocabulary else ()


@dataclass(frozen=True, slots=True)
class Conversation:
    """A seed prompt and the messages since, oldest first.

    ``messages``: attacker and target in turn. Neither the target's system prompt nor the seed
    prompt is among them: the format of each side decides what it reads of those.
    """

    prompt: Prompt
    messages: tuple[Message, ...] = ()

    @property
    def goal(self) -> str:
        """The attacker's goal, from the prompt's ``goal`` column; empty for none."""
        return self._column("goal")

    @property
    def category(self) -> str:
        """The prompt's category, from its ``category`` column; empty for none."""
        return self._column("category")

    @property
    def context(self) -> str:
        """What the prompt is about, from its ``context`` column; empty for none."""
        return self._column(CONTEXT)

    @property
    def reference_reply(self) -> str:
        """An example of a reply that fails, from the ``reference_reply`` column; empty for none."""
        return self._column("reference_reply")

    @property
    def num_turns(self) -> int:
        """How often the target has answered."""
        return sum(message.role == "assistant" for message in self.messages)

    def say(self, *messages: Message) -> Self:
        """The conversation with these messages at its end."""
        return replace(self, messages=(*self.messages, *messages))

    def _column(self, name: str) -> str:
        value = self.prompt.metadata.get(name)
        return "" if value is None else str(value)
