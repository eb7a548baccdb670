"""The attacker's side of a chat template: it is the assistant, and the target is its user.

The first user message is the instruction, filled from the prompt. Where the instruction has the
slot ``{conversation}``, it is the only message, written again for every turn.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from astra_core.conversation import Conversation, Message, Role
from astra_core.models.chat_format import ChatFormat, Ids, SeparatorFormat
from astra_core.models.language_model import LanguageModel
from astra_core.models.marked_template import line_ends
from astra_core.models.template_format import TemplateFormat
from astra_core.settings.attacker import DEFAULT_INSTRUCTION, AttackerConfiguration, slots_of

_NAMES = {"user": "User", "assistant": "Assistant"}


class AttackerTemplate(TemplateFormat):
    """The chat template as an attacker reads it.

    Raises ConfigurationError if there is no template, or it refuses a system prompt or turns.
    """

    def __init__(self, model: LanguageModel, config: AttackerConfiguration) -> None:
        if config.template is not None:
            model.tokenizer.chat_template = config.template
        super().__init__(
            model, system=config.system_prompt, tags=config.think_tags, where="system.attacker"
        )
        if config.template is not None:
            model.allow(ends=line_ends(model.tokenizer, system=self.system, where=self.where))
            # Written with the weights, so that the exported attacker ends there too.
            model.model.generation_config.eos_token_id = list(model.end_ids)
        self.instruction = config.instruction or DEFAULT_INSTRUCTION
        self.is_told_anew = "conversation" in slots_of(self.instruction)

    def _system_prompt(self, conversation: Conversation) -> str | None:
        # Never what the target alone knows; the instruction has slots of its own.
        del conversation
        return self.system

    def _versions(self, conversation: Conversation) -> Iterator[Sequence[Message]]:
        messages = conversation.messages
        for start in range(0, len(messages) + 1, 2):
            kept = messages[start:]
            told = Message("user", self._fill(conversation, kept))
            yield (told,) if self.is_told_anew else (told, *map(_flip, kept))

    def _fill(self, conversation: Conversation, messages: Sequence[Message]) -> str:
        lines = [f"{_NAMES[own.role]}: {own.text}" for own in messages]
        return self.instruction.format(
            prompt=conversation.prompt.text,
            goal=conversation.goal,
            context=conversation.context,
            category=conversation.category,
            conversation="\n".join(lines),
        )


def attacker_format(
    model: LanguageModel, config: AttackerConfiguration, told: Ids = ()
) -> ChatFormat:
    """The format that the configuration names for this model.

    ``told``: for the separator format: ids that are read before every conversation.
    """
    if uses_template(model, config):
        return AttackerTemplate(model, config)
    return SeparatorFormat(model, told)


def uses_template(model: LanguageModel, config: AttackerConfiguration) -> bool:
    """True where the attacker reads its chat template."""
    has_template = bool(config.template or model.tokenizer.chat_template)
    return config.format == "template" or (config.format == "auto" and has_template)


def _flip(message: Message) -> Message:
    role: Role = "assistant" if message.role == "user" else "user"
    return replace(message, role=role)
