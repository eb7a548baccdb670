"""Replies by rules from a file, for tests and tutorials; the first matching rule replies."""

from collections.abc import Sequence
from pathlib import Path
from typing import Self

import yaml
from pydantic import Field, ValidationInfo, field_validator, model_validator

from astra_core.config import Count, GenerationConfiguration, Section
from astra_core.conversation import Conversation
from astra_core.errors import ConfigurationError
from astra_core.files import record_digest
from astra_core.seeding import generator
from astra_core.settings.patterns import check_pattern, occurs
from astra_core.target import Answer, Outcome, Reply, Surroundings, Target, Usage


class Rule(Section):
    """A reply and when it is given."""

    when: str = Field("", description="A regular expression, found in the probe.")
    before: str | None = Field(
        None, description="Another, found in an earlier probe; null asks for none."
    )
    turn: Count | None = Field(None, description="The turn of the rule; null is any.")
    say: tuple[str, ...] = Field(min_length=1, description="One of these; {probe} is the probe.")

    @field_validator("when", "before")
    @classmethod
    def _can_be_found(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None:
            check_pattern(str(info.field_name), value)
        return value

    def fits(self, probes: Sequence[str]) -> bool:
        """Whether it replies to the last of these probes of one conversation."""
        *earlier, last = probes
        return (
            self.turn in {None, len(probes)}
            and occurs(self.when, last, where="target 'scripted': when")
            and (self.before is None or any(self._precedes(probe) for probe in earlier))
        )

    def _precedes(self, probe: str) -> bool:
        return occurs(self.before or "", probe, where="target 'scripted': before")


class Rules(Section):
    """The file."""

    rules: tuple[Rule, ...] = ()
    otherwise: tuple[str, ...] = Field(("I cannot help with that.",), min_length=1)


class Scripted(Target):
    """Replies by its rules; the random key chooses among several texts."""

    works_on = "cpu"

    class Options(Section):
        """Rules in a file of YAML or JSON, or here."""

        path: Path | None = Field(None, description="File with rules and otherwise.")
        rules: tuple[Rule, ...] = ()
        otherwise: tuple[str, ...] = Rules.model_fields["otherwise"].default

        @model_validator(mode="after")
        def _rules_are_in_one_place(self) -> Self:
            if self.path is not None and self.rules:
                msg = "rules must be empty where path names a file of them"
                raise ValueError(msg)
            return self

    options: Options

    def __init__(self, options: Options, *, surroundings: Surroundings) -> None:
        super().__init__(options, surroundings=surroundings)
        self._rules = _rules_of(options)
        self._digest = record_digest(["scripted", self._rules.model_dump(mode="json")])

    def digest(self) -> str:
        """Of the rules, wherever they are."""
        return self._digest

    def respond(
        self,
        conversations: Sequence[Conversation],
        keys: Sequence[Sequence[bytes]],
        generation: GenerationConfiguration,
        *,
        tokens_per_batch: int = 16384,
    ) -> list[Outcome]:
        """The replies of the rules, cut after ``max_new_tokens`` words."""
        del tokens_per_batch
        return [
            Answer(
                tuple(self._reply(conversation, key, generation.max_new_tokens) for key in own),
                usage=Usage(calls=len(own)),
            )
            for conversation, own in zip(conversations, keys, strict=True)
        ]

    def _reply(self, conversation: Conversation, key: bytes, most: int) -> Reply:
        probes = [message.text for message in conversation.messages if message.role == "user"]
        fitting = (rule.say for rule in self._rules.rules if rule.fits(probes))
        sayings = next(fitting, self._rules.otherwise)
        saying = sayings[int(generator(key).integers(len(sayings)))].replace("{probe}", probes[-1])
        words = saying.split(" ")
        if len(words) <= most:
            return Reply(saying)
        return Reply(" ".join(words[:most]), finish_reason="length")


def _rules_of(options: Scripted.Options) -> Rules:
    """The rules of the file, or those of the options."""
    path = options.path
    if path is None:
        return Rules(rules=options.rules, otherwise=options.otherwise)
    try:
        record = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        msg = f"target 'scripted' path must name a file of YAML or JSON, got: {reason}; correct it"
        raise ConfigurationError(msg) from error
    return Rules.read(record, where=str(path))
