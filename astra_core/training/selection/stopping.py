"""Which evaluation was best, and when it is time to stop."""

import math
import time
from collections.abc import Mapping
from typing import Any

from astra_core.config import EarlyStopping

TIE_BREAKER = "eval/score_mean"
"""A rate over few conversations is often the same twice; the mean score hardly ever is."""


class Best:
    """The best evaluation so far by one metric, and among equals by the mean score.

    Attributes:
        value: The best value; NaN before the first evaluation.
        score_mean: Its mean score; NaN if it has none.
        model: Name of the saved model that was evaluated; empty if there is none.
        num_processes: Processes that shared the best evaluation; their number affects rounding.
    """

    def __init__(self, *, metric: str, mode: str) -> None:
        self.metric = metric
        self.value = math.nan
        self.score_mean = math.nan
        self.training_step = 0
        self.model = ""
        self.num_since = 0
        self.before: dict[str, Any] | None = None
        self.num_processes = 1
        self._sign = 1.0 if mode == "max" else -1.0

    def offer(
        self, metrics: Mapping[str, float], training_step: int, model: str, *, min_delta: float
    ) -> bool:
        """True if this evaluation is the best from now on.

        It is if it beats the best by more than ``min_delta``. Where any gain counts and the highest
        value is reached again, the higher mean score is better; to the patience of early stopping
        this is no gain.
        """
        self.before = self._now()
        value = metrics[self.metric]
        gain = self._sign * (value - self.value)
        score_mean = metrics.get(TIE_BREAKER, math.nan)
        wins_tie = gain == min_delta == 0.0 and self._sign > 0.0 and score_mean > self.score_mean
        # The first beats none; an infinity that is reached again gains NaN, which is no gain.
        is_gain = not math.isnan(value) and (math.isnan(self.value) or gain > min_delta)
        self.num_since = 0 if is_gain else self.num_since + 1
        if is_gain or wins_tie:
            self.value, self.training_step, self.model = value, training_step, model
            self.score_mean = score_mean
        return is_gain or wins_tie

    @property
    def models(self) -> set[str]:
        """The saved models that it refers to: the best, and the best before the last evaluation."""
        return {self.model, (self.before or {}).get("model", "")} - {""}

    def forget_last(self) -> None:
        """Removes the last evaluation, as if it had not been made."""
        if self.before is not None:
            self.load(self.before)

    def record(self) -> dict[str, Any]:
        """The record for a checkpoint; null before the first evaluation."""
        return {**self._now(), "before": self.before}

    def _now(self) -> dict[str, Any]:
        value = None if math.isnan(self.value) else self.value
        shared = {"num_processes": self.num_processes} if self.num_processes > 1 else {}
        scored = {} if math.isnan(self.score_mean) else {"score_mean": self.score_mean}
        return {
            "metric": self.metric,
            "value": value,
            "training_step": self.training_step,
            "model": self.model,
            "num_since": self.num_since,
            **shared,
            **scored,
        }

    def load(self, record: Mapping[str, Any]) -> None:
        """Restores what ``record`` returned."""
        self.value = math.nan if record["value"] is None else record["value"]
        self.training_step = record["training_step"]
        self.model = record["model"]
        self.num_since = record["num_since"]
        self.before = record.get("before")
        self.num_processes = record.get("num_processes", 1)
        self.score_mean = record.get("score_mean", math.nan)


class Stopping:
    """The rules that end a run before its last step."""

    def __init__(self, config: EarlyStopping) -> None:
        self._config = config
        self._kl_nats = 0.0
        self._started = time.monotonic()

    def start(self) -> None:
        """Restarts the clock; time spent in an earlier process does not count."""
        self._started = time.monotonic()

    def note(self, metrics: Mapping[str, float]) -> None:
        """Records an experience."""
        self._kl_nats = metrics.get("rollout/kl_nats", 0.0)

    def reason(self, step: int, best: Best) -> str:
        """Why the run ends after a training step, in words; empty while it continues."""
        patience = self._config.patience
        if patience is not None and best.num_since >= patience:
            return f"{best.metric} did not improve for {best.num_since} evaluations"
        return self.spent_budget(step)

    def spent_budget(self, step: int) -> str:
        """The budget that is used up before another update, in words; empty if none is."""
        config = self._config
        if config.max_kl_nats is not None and self._kl_nats > config.max_kl_nats:
            return (
                f"KL to the reference reached {self._kl_nats:.2f} nats per probe, beyond "
                f"training.early_stopping.max_kl_nats of {config.max_kl_nats:g}"
            )
        if config.max_optimizer_steps is not None and step >= config.max_optimizer_steps:
            return f"{step} optimiser steps are done"
        if config.max_seconds is not None and time.monotonic() - self._started > config.max_seconds:
            return f"{config.max_seconds:.0f} seconds have passed"
        return ""

    def record(self) -> dict[str, float]:
        """For a checkpoint."""
        return {"kl_nats": self._kl_nats}

    def load(self, record: Mapping[str, float]) -> None:
        """Restores what ``record`` returned."""
        self._kl_nats = record["kl_nats"]
