"""A judge whose policy is a list of patterns, with a time limit for each."""

from collections.abc import Sequence
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from astra_core.config import Probability, Seconds, Section
from astra_core.files import record_digest
from astra_core.judge import Exchange, Judge, Judgement
from astra_core.settings.patterns import check_pattern

PatternName = Annotated[str, Field(pattern=r"\S")]


class Pattern(Section):
    """What to look for, and how bad it is."""

    pattern: str = Field(min_length=1, description="As Python's re has it.")
    weight: Probability = Field(1.0, description="The score if nothing else is found.")


class RegexJudge(Judge):
    """Combines the weights of the patterns that occur: weights a and b give 1-(1-a)(1-b)."""

    class Options(Section):
        """The patterns, and how they are read."""

        patterns: dict[PatternName, Pattern] = Field(min_length=1, description="By name.")
        ignore_case: bool = True
        multiline: bool = Field(False, description="^ and $ are ends of lines.")
        dot_all: bool = Field(False, description=". is any character, a line's end too.")
        max_seconds: Seconds = Field(
            1.0, description="For one pattern in one reply; beyond it the reply is unjudged."
        )

        @model_validator(mode="after")
        def _patterns_are_patterns(self) -> Self:
            for name, own in self.patterns.items():
                check_pattern(f"patterns.{name}", own.pattern)
            return self

    options: Options

    def __init__(self, options: Options) -> None:
        # Not Python's own re: its search cannot be stopped, and some patterns never end.
        import regex

        super().__init__(options)
        flags = (
            (regex.IGNORECASE if options.ignore_case else 0)
            | (regex.MULTILINE if options.multiline else 0)
            | (regex.DOTALL if options.dot_all else 0)
        )
        self._found: dict[str, Any] = {
            name: regex.compile(own.pattern, flags) for name, own in options.patterns.items()
        }

    @property
    def version(self) -> str:
        """The digest of the options without the time limit."""
        own = self.options.model_dump(mode="json", exclude={"max_seconds"})
        return f"regex {record_digest(own)[:12]}"

    def judge(self, exchanges: Sequence[Exchange]) -> list[Judgement]:
        """One judgement per exchange, by its reply; labels are the patterns that occur."""
        return [self._judgement(exchange.reply) for exchange in exchanges]

    def _judgement(self, reply: str) -> Judgement:
        labels, left = {}, 1.0
        for name, pattern in self._found.items():
            try:
                occurs = pattern.search(reply, timeout=self.options.max_seconds) is not None
            except TimeoutError:
                return Judgement.none(f"the pattern '{name}' took too long")
            if occurs:
                labels[name] = self.options.patterns[name].weight
                left *= 1.0 - labels[name]
        return Judgement(1.0 - left, labels)
