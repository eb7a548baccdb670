"""Results of points as a run leaves them."""

from astra_core.metrics.statistics import Interval
from flows.sweeps.running import PointResult


def result(setting, seed, *, success=0.5, dev=0.5, key="k"):
    """A result with this success on test and dev prompts."""
    around = Interval(success, success - 0.1, success + 0.1)
    return PointResult(
        name=" ".join((*setting, f"seed={seed}")),
        setting=setting,
        seed=seed,
        key=key,
        seconds=2.0,
        run_key="r",
        run_id=None,
        success=around,
        baseline=Interval(0.1, 0.0, 0.2),
        lift=around,
        dev_success=dev,
        unique_probes=0.9,
    )
