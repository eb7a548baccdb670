"""A judge that is a function of yours."""

from collections.abc import Sequence
from typing import Any

from pydantic import Field, field_validator

from astra_core.config import Section
from astra_core.errors import ScorerError
from astra_core.extensions.calls import plugin_call
from astra_core.files import file_digest, record_digest
from astra_core.judge import Exchange, Judge, Judgement, problem_with
from astra_core.registry import function_of
from astra_parts.sources import sources_of


class ProgramJudge(Judge):
    """What the function returns for each exchange: a score in [0, 1], true or false, or None.

    None leaves the exchange unjudged; a ``Judgement`` is taken as it is.
    """

    class Options(Section):
        """The function."""

        function: str = Field(
            description="As my.module:grade or my/file.py:grade; it is given an Exchange."
        )

        @field_validator("function")
        @classmethod
        def _can_be_called(cls, value: str) -> str:
            function_of(value)
            return value

    options: Options

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._function = function_of(options.function)
        digests = [file_digest(path) for path in sources_of(options.function)]
        self._version = f"program {record_digest([options.function, digests])[:12]}"

    @property
    def version(self) -> str:
        """The digest of the function's name and of the files of code behind it."""
        return self._version

    def judge(self, exchanges: Sequence[Exchange]) -> list[Judgement]:
        """One judgement per exchange. Raises PluginError, ScorerError if it gave none."""
        return [self._judgement(exchange) for exchange in exchanges]

    def _judgement(self, exchange: Exchange) -> Judgement:
        with plugin_call("scorer", self.options.function, "a call"):
            found: Any = self._function(exchange)
        if found is None:
            return Judgement.none("the function returned None")
        judgement = found if isinstance(found, Judgement) else Judgement(found)
        if problem := problem_with(judgement):
            msg = (
                f"scorer '{self.options.function}' must give a score in [0, 1], a Judgement of one "
                f"or None, got {problem}; correct it there"
            )
            raise ScorerError(msg)
        return judgement
