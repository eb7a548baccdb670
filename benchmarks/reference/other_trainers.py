"""The same DPO update by other trainers: in ASTRA-RL's way, and by TRL's DPOTrainer."""

import math
import os
import tempfile
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import torch

from astra_core.algorithms.pairs import PreferencePair
from astra_core.models.language_model import LanguageModel
from benchmarks.reference.plain_passes import plain_dpo_loss
from benchmarks.shapes import SEED, Shape, language_model

Precision = Literal["fp32", "bf16"]
NO_STEP = 1e-12
"""A learning rate that moves no weight: every repetition computes the same update."""

_QUIET: dict[str, Any] = {
    "use_cpu": True,
    "report_to": "none",
    "gradient_checkpointing": False,
    "disable_tqdm": True,
}


class PlainTrainer:
    """ASTRA-RL's way: four forward passes of full log-softmax, backward through the reference.

    It knows fp32 only; under ``bf16`` its passes run under autocast, which it does not offer.
    """

    def __init__(self, shape: Shape, *, beta: float, precision: Precision) -> None:
        self.model = language_model(shape, is_trained=True).model
        self._reference = language_model(shape, seed=SEED + 1, is_trained=True).model
        self._beta = beta
        self._precision = precision
        self._optimizer = torch.optim.AdamW(self.model.parameters(), lr=NO_STEP)
        self.loss = math.nan

    def step(self, pairs: Sequence[PreferencePair]) -> float:
        """One update by these pairs; its loss, which is kept as ``loss``."""
        self._optimizer.zero_grad()
        with _autocast(self._precision):
            loss = plain_dpo_loss(self.model, self._reference, pairs, beta=self._beta)
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        self.loss = float(loss.detach())
        return self.loss


class TrlTrainer:
    """TRL's own trainer, on batches of its own collator; only tokenising is left out."""

    def __init__(self, shape: Shape, *, beta: float, precision: Precision) -> None:
        attacker = language_model(shape, is_trained=True)
        reference = language_model(shape, seed=SEED + 1)
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._trainer = _dpo_trainer(attacker, reference, folder, beta, precision)
        accelerator = self._trainer.accelerator
        self.model = accelerator.prepare_model(self._trainer.model)
        self._optimizer = self._trainer.create_optimizer()
        self.loss = math.nan

    def step(self, pairs: Sequence[PreferencePair]) -> float:
        """One update by these pairs; its loss, which is kept as ``loss``."""
        batch = self._trainer.data_collator(
            [
                {
                    "prompt_ids": list(pair.chosen.context_ids),
                    "chosen_ids": list(pair.chosen.probe_ids),
                    "rejected_ids": list(pair.rejected.probe_ids),
                }
                for pair in pairs
            ]
        )
        self._optimizer.zero_grad()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loss = self._trainer.training_step(self.model, batch)
        self._optimizer.step()
        self.loss = float(loss)
        return self.loss


def gradient_norm(model: Any) -> float:
    """The norm of the gradients that the last step left."""
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    return float(torch.nn.utils.get_total_norm(gradients))


def _dpo_trainer(
    attacker: LanguageModel,
    reference: LanguageModel,
    folder: str,
    beta: float,
    precision: Precision,
) -> Any:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import datasets
    import trl

    datasets.disable_progress_bars()
    attacker.tokenizer.pad_token = attacker.tokenizer.eos_token
    config = trl.DPOConfig(
        output_dir=folder,
        beta=beta,
        learning_rate=NO_STEP,
        bf16=precision == "bf16",
        max_length=None,
        **_QUIET,
    )
    trainer = trl.DPOTrainer(
        model=attacker.model,
        ref_model=reference.model,
        args=config,
        processing_class=attacker.tokenizer,
        train_dataset=datasets.Dataset.from_list(
            [{"prompt": "w0", "chosen": " w1", "rejected": " w2"}]
        ),
    )
    trainer.current_gradient_accumulation_steps = 1
    return trainer


def _autocast(precision: Precision) -> AbstractContextManager[Any]:
    return torch.autocast("cpu", torch.bfloat16) if precision == "bf16" else nullcontext()


TRAINERS: dict[str, Callable[..., PlainTrainer | TrlTrainer]] = {
    "plain way": PlainTrainer,
    "TRL": TrlTrainer,
}
