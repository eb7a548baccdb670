"""A chat model that attacks by a script, in the place of a trained attacker."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from astra_core.config import Choice
from astra_core.conversation import Conversation, Message
from astra_core.errors import BudgetError, ConfigurationError, RolloutError, TargetError
from astra_core.registry import build
from astra_core.rollout import Failure, Prompt
from astra_core.samplers.level import Growth
from astra_core.target import Surroundings, Target, Usage
from astra_parts.attackers.scripts import Script
from astra_parts.samplers.talks import Talk

ROOM = 4096
"""Context tokens that a chat model may read of its instruction and the conversation."""


@dataclass(slots=True)
class PromptedAttacker:
    """Speaks as a script tells a chat model to.

    Attributes:
        model: Reads its instruction as a user's message, and answers with a probe.
        depth: Turns of a conversation.
        usage: What the model was used for so far.
    """

    script: Script
    model: Target
    growth: Growth
    depth: int
    usage: Usage = field(default_factory=Usage)

    def __call__(self, talks: Sequence[Talk]) -> list[str | Failure]:
        """The next probe of each conversation, which is taken back as far as the script says.

        Where the model writes no message, the prompt itself is said.

        Raises RolloutError if the model cannot be asked at all, or its budget is spent.
        """
        script, config = self.script, self.growth.system.config
        told = []
        for talk in talks:
            talk.conversation = script.continues(talk)
            # Columns of the prompt, such as a secret, are the target's alone.
            prompt = Prompt(talk.prompt.prompt_id, talk.prompt.text)
            told.append(
                Conversation(prompt).say(Message("user", script.instruction_for(talk, self.depth)))
            )
        tokens = max(config.probe.max_new_tokens, script.tokens)
        try:
            found = self.model.respond(
                told,
                [[self.growth.key(script.name, talk.prompt, talk.path)] for talk in talks],
                config.probe.model_copy(update={"max_new_tokens": tokens}),
                tokens_per_batch=config.tokens_per_batch,
            )
        except (BudgetError, TargetError) as error:
            # Nothing is wrong with the target that is attacked, which others may still ask.
            msg = f"the attacker's model: {error}"
            raise RolloutError(msg) from error
        said: list[str | Failure] = []
        for talk, outcome in zip(talks, found, strict=True):
            if isinstance(outcome, Failure):
                said.append(replace(outcome, reason=f"the attacker's model: {outcome.reason}"))
            else:
                self.usage += outcome.usage
                said.append(script.message_of(outcome.replies[0].text) or talk.prompt.text)
        return said


def chat_model(named: Path | Choice, surroundings: Surroundings) -> Target:
    """The model that plays prompted attackers.

    ``named``: the folder of a chat model, or any target.

    Raises ConfigurationError if it cannot be built, or the folder's model has no chat template.
    """
    config = surroundings.config.model_copy(update={"max_context_tokens": ROOM})
    if isinstance(named, Choice):
        choice, folder, name = named, surroundings.folder, named.name
    else:
        choice, folder = Choice(name="causal_lm", options={"format": "template"}), named
        name = str(folder)
    own = replace(surroundings, config=config, folder=folder)
    try:
        model: Target = build("target", choice, surroundings=own)
    except ConfigurationError as error:
        msg = f"what plays prompted attackers must be able to chat, got {name}: {error}"
        raise ConfigurationError(msg) from error
    return model
