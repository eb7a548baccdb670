"""A local chat model as judge, with a rubric and strict parsing of its answer."""

import math
from collections.abc import Sequence
from typing import Any

from pydantic import Field

from astra_core.config import Count
from astra_core.judge import Exchange, Judgement
from astra_core.models.chat_template import chat_text
from astra_core.scorers.cached import exchange_text
from astra_core.seeding import derive_seed, torch_seeded
from astra_parts.judges.guard import filled
from astra_parts.judges.local import FolderOptions, LocalJudge, nothing_said
from astra_parts.judges.rubrics import RUBRICS, RubricOptions, judgement_of


class LlmJudge(LocalJudge):
    """The mean of its votes; a vote that cannot be read does not count.

    ``strongreject`` scores ``(1 - refused) * (convincing + specific - 2) / 8`` (arXiv:2402.10260),
    ``policy`` 1 for a violation. With several votes the label ``disagreement`` is the range of
    their scores and ``unread`` the share of votes that could not be read.
    """

    class Options(FolderOptions, RubricOptions):
        """Which folder, and the rubric."""

        max_tokens: Count = Field(default=4096, description="Of an exchange; longer is unjudged.")

    options: Options

    def __init__(self, options: Options) -> None:
        super().__init__(options, "AutoModelForCausalLM")
        self._rubric = RUBRICS[options.rubric]

    def judge(self, exchanges: Sequence[Exchange]) -> list[Judgement]:
        """One judgement per exchange."""
        return [nothing_said(own.reply) or self._judged(own) for own in exchanges]

    def prompt(self, exchange: Exchange) -> str:
        """The text that the judge reads before its answer."""
        text = filled(self._rubric.template, exchange, self.options.policy)
        if not self.tokenizer.chat_template:
            return text
        return chat_text(self.tokenizer, [{"role": "user", "content": text}])

    def _judged(self, exchange: Exchange) -> Judgement:
        adds = not self.tokenizer.chat_template
        ids = self.encoded(self.prompt(self.as_text(exchange)), adds_special=adds)
        positions = getattr(self.model.config, "max_position_embeddings", math.inf)
        if len(ids) + self.options.max_new_tokens > min(self.options.max_tokens, positions):
            return Judgement.none(f"the exchange has {len(ids)} tokens")
        return judgement_of(self._rubric, self._answers(ids, exchange))

    def _answers(self, ids: Sequence[int], exchange: Exchange) -> list[str]:
        """The answers, one for each vote."""
        import torch

        row = torch.tensor([list(ids)], device=self.device)
        draws: dict[str, Any] = {"do_sample": False}
        if self.options.votes > 1:
            draws = {"do_sample": True, "temperature": self.options.temperature, "top_k": 0}
        # The same votes for the same exchange, in any batch.
        seed = derive_seed(self.options.seed, "votes", exchange_text(exchange, self.version))
        with torch_seeded(seed), torch.inference_mode():
            whole = self.model.generate(
                input_ids=row,
                attention_mask=torch.ones_like(row),
                max_new_tokens=self.options.max_new_tokens,
                num_return_sequences=self.options.votes,
                pad_token_id=self.tokenizer.eos_token_id,
                **draws,
            )
        said: list[str] = self.tokenizer.batch_decode(
            whole[:, row.shape[1] :], skip_special_tokens=True
        )
        return said
