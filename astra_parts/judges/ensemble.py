"""Several judges as one: mean, max, min, weighted, or a costly one that confirms a cheap one."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from astra_core.config import Choice, Positive, Probability, Section
from astra_core.errors import DataError
from astra_core.files import record_digest
from astra_core.judge import Exchange, Judge, Judgement, as_judge, checked_judgements
from astra_core.registry import build, find
from astra_core.scorer import version_of

# Exchanges after which a part that judged none of them is taken for one that never will.
_PATIENCE = 32

PartName = Annotated[str, Field(pattern=r"^[\w-]+$")]


class EnsemblePart(Section):
    """One of the judges."""

    judge: Choice
    weight: Positive = 1.0


class EnsembleJudge(Judge):
    """Each part's score is a label of the judgement, under the part's name.

    A part that cannot judge an exchange is left out. An exchange is unjudged if no part could judge
    it, or with ``confirm`` if the first flags it and no other could judge it.
    """

    class Options(Section):
        """The parts, and how their scores are combined."""

        judges: dict[PartName, EnsemblePart] = Field(
            min_length=2, description="By a name of your own."
        )
        combine: Literal["mean", "max", "min", "weighted", "confirm"] = Field(
            "mean",
            description="confirm: the others, whose mean counts, see only what the first flags.",
        )
        threshold: Probability = Field(0.5, description="At which the first flags (confirm).")

        @model_validator(mode="after")
        def _parts_can_be_read(self) -> Self:
            for part in self.judges.values():
                find("scorer", part.judge)
            return self

    options: Options

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._parts: dict[str, Judge] = {
            name: as_judge(build("scorer", part.judge)) for name, part in options.judges.items()
        }
        # How many exchanges each part could not judge that another could, and none in between.
        self._missed = dict.fromkeys(self._parts, 0)
        places = {part.works_on for part in self._parts.values()}
        # It works where its first part that must not be disturbed does.
        self.works_on = next((p for p in ("gpu", "cpu") if p in places), "elsewhere")

    @property
    def version(self) -> str:
        """The digest of the parts' versions and the rule."""
        parts = {name: version_of(part) for name, part in self._parts.items()}
        rule: dict[str, Any] = self.options.model_dump(mode="json", exclude={"judges"})
        weights = {name: part.weight for name, part in self.options.judges.items()}
        return f"ensemble {record_digest([parts, weights, rule])[:12]}"

    def judge(self, exchanges: Sequence[Exchange]) -> list[Judgement]:
        """One judgement per exchange.

        Raises DataError if a part never judges, so that the score would be that of the others.
        """
        if self.options.combine == "confirm":
            return self._confirm(exchanges)
        found = {name: checked_judgements(own, exchanges) for name, own in self._parts.items()}
        self._count(found)
        return [
            self._join({name: own[at] for name, own in found.items()})
            for at in range(len(exchanges))
        ]

    def _confirm(self, exchanges: Sequence[Exchange]) -> list[Judgement]:
        first, *others = self._parts
        cheap = checked_judgements(self._parts[first], exchanges)
        flagged = [
            at
            for at, own in enumerate(cheap)
            if own.score is not None and own.score >= self.options.threshold
        ]
        asked = [exchanges[at] for at in flagged]
        # A part is not called for an empty batch.
        dear = {name: checked_judgements(self._parts[name], asked) for name in others if asked}
        found = [replace(own, labels=_labels({first: own})) for own in cheap]
        for place, at in enumerate(flagged):
            seen = {name: own[place] for name, own in dear.items()}
            found[at] = self._verdict(first, cheap[at], seen)
        return found

    def _count(self, found: Mapping[str, Sequence[Judgement]]) -> None:
        judged = {
            at for own in found.values() for at, each in enumerate(own) if each.score is not None
        }
        for name, own in found.items():
            missed = [each.unjudged for at, each in enumerate(own) if at in judged]
            is_working = any(not reason for reason in missed)
            self._missed[name] = 0 if is_working else self._missed[name] + len(missed)
            if self._missed[name] >= _PATIENCE:
                msg = (
                    f"the part '{name}' of the judge 'ensemble' must judge some exchanges, got "
                    f"none of the last {self._missed[name]}; the first: {missed[0]}"
                )
                raise DataError(msg)

    def _verdict(self, first: str, cheap: Judgement, dear: Mapping[str, Judgement]) -> Judgement:
        joined = self._join(dear)
        return replace(joined, labels={**_labels({first: cheap}), **joined.labels})

    def _join(self, parts: Mapping[str, Judgement]) -> Judgement:
        known = {name: own.score for name, own in parts.items() if own.score is not None}
        words = " ".join(own.rationale for own in parts.values() if own.rationale)
        if not known:
            reason = next(own.unjudged for own in parts.values())
            return Judgement(None, _labels(parts), words, reason)
        return Judgement(self._combine(known), _labels(parts), words)

    def _combine(self, scores: Mapping[str, float]) -> float:
        if self.options.combine in {"max", "min"}:
            return (max if self.options.combine == "max" else min)(scores.values())
        is_weighted = self.options.combine == "weighted"
        weights = {n: self.options.judges[n].weight if is_weighted else 1.0 for n in scores}
        total = sum(weights.values())
        return min(1.0, sum(score * weights[name] for name, score in scores.items()) / total)


def _labels(parts: Mapping[str, Judgement]) -> dict[str, float]:
    """Each part's score under its name, and its labels below that."""
    labels = {name: own.score for name, own in parts.items() if own.score is not None}
    for name, own in parts.items():
        labels |= {f"{name}.{label}": value for label, value in own.labels.items()}
    return labels
