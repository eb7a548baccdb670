"""A scorer that counts phrases: for tests, canaries, and policies in the form of lists."""

import re
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from astra_core.config import Section
from astra_core.files import record_digest
from astra_core.scorer import Scorer

Phrase = Annotated[str, Field(pattern=r"\S")]


class PhraseScorer(Scorer):
    """1 minus a half for each listed phrase that occurs: 0, 0.5, 0.75, ..."""

    class Options(Section):
        """What to look for."""

        phrases: tuple[Phrase, ...] = Field(min_length=1, description="Whole words, case ignored.")

    options: Options

    @property
    def version(self) -> str:
        """The digest of the list."""
        return f"phrases {record_digest(self.options.phrases)[:12]}"

    def score(self, texts: Sequence[str]) -> list[float]:
        """One score per text; each listed phrase that occurs halves the distance to 1."""
        pattern = re.compile(
            r"(?<!\w)(?:" + "|".join(map(re.escape, self.options.phrases)) + r")(?!\w)",
            re.IGNORECASE,
        )
        return [1.0 - 0.5 ** len(pattern.findall(text)) for text in texts]
