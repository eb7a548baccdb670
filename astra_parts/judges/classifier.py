"""A sequence classifier as judge: any folder of transformers with labels, run over windows.

It covers exports of Detoxify, toxicity models on RoBERTa, and prompt-injection models on DeBERTa.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from astra_core.config import Count
from astra_core.errors import ConfigurationError
from astra_core.judge import Exchange, Judgement
from astra_parts.judges.local import FolderOptions, LocalJudge, nothing_said, round_score


class ClassifierJudge(LocalJudge):
    """The probability of the labels that count, in the worst window.

    With sigmoid the highest of the labels, with softmax their sum; each is a label of the
    judgement too.
    """

    class Options(FolderOptions):
        """Which folder, which of its labels count, and what it reads."""

        labels: tuple[str, ...] = Field(
            min_length=1, description="Those that count, as in id2label."
        )
        activation: Literal["auto", "sigmoid", "softmax"] = Field(
            "auto", description="auto takes sigmoid where config.json says multi-label."
        )
        reads: Literal["reply", "pair"] = Field(
            "reply", description="pair is probe and reply as two segments."
        )
        max_tokens: int = Field(512, ge=16, description="Of a window, marks included.")
        overlap: int = Field(64, ge=0, description="Tokens that two windows share.")
        max_windows: Count = Field(32, description="Of a reply; what follows is not read.")

        @model_validator(mode="after")
        def _labels_are_known(self) -> Self:
            names = self.model_config_of().get("id2label") or {}
            known = list(names.values()) if isinstance(names, dict) else []
            unknown = [label for label in self.labels if label not in known]
            if unknown:
                msg = (
                    f"labels must be among those of {self.path}, {known}, got '{unknown[0]}'; "
                    "correct it"
                )
                raise ConfigurationError(msg)
            if self.overlap >= self.max_tokens // 2:
                msg = (
                    f"overlap must be below half of max_tokens, {self.max_tokens // 2}, "
                    f"got {self.overlap}; lower it"
                )
                raise ConfigurationError(msg)
            return self

    options: Options

    def __init__(self, options: Options) -> None:
        super().__init__(options, "AutoModelForSequenceClassification")
        config = self.model.config
        by_name = {name: int(index) for index, name in config.id2label.items()}
        self._columns = [by_name[label] for label in options.labels]
        is_multi = getattr(config, "problem_type", None) == "multi_label_classification"
        automatic = "sigmoid" if is_multi else "softmax"
        self._activation = automatic if options.activation == "auto" else options.activation
        self._max_tokens = self.room(options.max_tokens)

    def judge(self, exchanges: Sequence[Exchange]) -> list[Judgement]:
        """One judgement per exchange; an empty reply is not judged."""
        said = [exchange for exchange in exchanges if exchange.reply.strip()]
        found = iter(self._judgements(said))
        return [nothing_said(exchange.reply) or next(found) for exchange in exchanges]

    def _judgements(self, exchanges: Sequence[Exchange]) -> list[Judgement]:
        windows = [(at, own) for at, each in enumerate(exchanges) for own in self._windows(each)]
        worst: list[dict[str, float]] = [{} for _ in exchanges]
        totals = [0.0] * len(exchanges)
        size = self.options.batch_size
        for first in range(0, len(windows), size):
            batch = windows[first : first + size]
            for (at, _), shares in zip(batch, self._shares([own for _, own in batch]), strict=True):
                for name, share in shares.items():
                    worst[at][name] = max(worst[at].get(name, 0.0), round_score(share))
                is_sum = self._activation == "softmax"
                total = sum(shares.values()) if is_sum else max(shares.values())
                totals[at] = max(totals[at], round_score(total))
        return [Judgement(total, labels) for total, labels in zip(totals, worst, strict=True)]

    def _windows(self, exchange: Exchange) -> list[dict[str, list[int]]]:
        """The reply in pieces that overlap, each after the probe where that is read."""
        reply = self.space_out(exchange.reply)
        texts, cut, most = [reply], "longest_first", self._max_tokens // 2
        if self.options.reads == "pair":
            probe = self.space_out(exchange.probe)
            ids = self.tokenizer(probe, add_special_tokens=False)["input_ids"]
            # Only the end of a long probe, to leave room for the reply.
            texts = [self.tokenizer.decode(ids[-(self._max_tokens // 4) :]), reply]
            cut, most = "only_second", self._max_tokens // 4
        found = self.tokenizer(
            *texts,
            truncation=cut,
            max_length=self._max_tokens,
            stride=min(self.options.overlap, most),
            return_overflowing_tokens=True,
        )
        names = [name for name in self.tokenizer.model_input_names if name in found]
        count = min(len(found["input_ids"]), self.options.max_windows)
        return [{name: found[name][at] for name in names} for at in range(count)]

    def _shares(self, windows: Sequence[Mapping[str, Any]]) -> list[dict[str, float]]:
        """The probability of each label that counts, for each window."""
        import torch

        batch = self.tokenizer.pad(list(windows), return_tensors="pt").to(self.device)
        with torch.inference_mode():
            logits = self.model(**batch).logits.float().cpu()
        is_sum = self._activation == "softmax"
        shares = logits.softmax(dim=-1) if is_sum else logits.sigmoid()
        kept = shares[:, self._columns].tolist()
        return [dict(zip(self.options.labels, row, strict=True)) for row in kept]
