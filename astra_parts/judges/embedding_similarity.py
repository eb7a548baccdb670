"""How near a reply comes to the prompt's ``reference_reply``, by mean hidden states."""

from collections.abc import Sequence
from typing import Any

from pydantic import Field

from astra_core.config import Count
from astra_core.judge import Exchange, Judgement
from astra_parts.judges.local import FolderOptions, LocalJudge, nothing_said, round_score


class SimilarityJudge(LocalJudge):
    """The cosine of reply and reference, from ``floor`` to 1 as from 0 to 1.

    A folder may hold an encoder or a causal model; its last hidden states are averaged over tokens.
    A prompt without ``reference_reply`` cannot be judged.
    """

    class Options(FolderOptions):
        """Whose hidden states are taken, and which nearness begins to count."""

        floor: float = Field(
            0.0, ge=-1.0, lt=1.0, description="Cosine at or below which the score is 0."
        )
        max_tokens: Count = Field(256, description="Of a text; what follows is not read.")

    options: Options

    def __init__(self, options: Options) -> None:
        super().__init__(options, "AutoModel")
        self._max_tokens = self.room(options.max_tokens)

    def judge(self, exchanges: Sequence[Exchange]) -> list[Judgement]:
        """One judgement per exchange."""
        texts = dict.fromkeys(
            text
            for exchange in exchanges
            for text in (exchange.reply, exchange.conversation.reference_reply)
            if text.strip()
        )
        vectors = self._vectors(list(texts))
        return [self._judgement(exchange, vectors) for exchange in exchanges]

    def _judgement(self, exchange: Exchange, vectors: dict[str, Any]) -> Judgement:
        wanted = exchange.conversation.reference_reply
        if not wanted.strip():
            return Judgement.none("the prompt has no reference_reply")
        silent = nothing_said(exchange.reply)
        if silent is not None:
            return silent
        cosine = float(vectors[exchange.reply] @ vectors[wanted])
        return Judgement(round_score((cosine - self.options.floor) / (1.0 - self.options.floor)))

    def _vectors(self, texts: Sequence[str]) -> dict[str, Any]:
        """The unit vector of each text."""
        found: dict[str, Any] = {}
        for first in range(0, len(texts), self.options.batch_size):
            batch = texts[first : first + self.options.batch_size]
            found |= zip(batch, self._unit_vectors(batch), strict=True)
        return found

    def _unit_vectors(self, texts: Sequence[str]) -> Any:
        import torch

        from astra_core.models.rows import pad_rows

        rows = [
            self.tokenizer(self.space_out(text))["input_ids"][: self._max_tokens] or [0]
            for text in texts
        ]
        read = pad_rows([()] * len(rows), rows, pad_id=0, device=self.device)
        with torch.inference_mode():
            output = self.model(input_ids=read.input_ids, attention_mask=read.attention_mask)
        weights = read.attention_mask.cpu().float()[:, :, None]
        means = (output.last_hidden_state.float().cpu() * weights).sum(dim=1) / weights.sum(dim=1)
        return torch.nn.functional.normalize(means, dim=1)
