"""What a report is made from, without a registry: a version of hand-made figures."""

from dataclasses import replace

import pandas as pd
from registry_project import examined, prompt_table

from astra_core.metrics.statistics import Interval
from tasks.figures.turns import TurnRates, TurnRecord
from tasks.records.training import TrainingRecord
from tasks.report.findings import Finding
from tasks.report.material import Material
from tasks.tracking.lineage.chronicle import DataUsed, Lineage, VersionSummary

HOSTILE = "<script>alert(1)</script>&\"'"
STEPS = pd.DataFrame(
    {
        "step": [0, 1, 2, 3],
        "training_step": [0, 1, 1, 2],
        "eval/attack_success_rate": [0.2, None, None, 0.5],
        "eval/attack_success_rate_low": [0.1, None, None, 0.4],
        "eval/attack_success_rate_high": [0.3, None, None, 0.6],
        "eval/reward_mean": [0.1, None, None, 0.4],
        "eval/kl_nats": [0.0, None, None, 3.0],
        "eval/unique_probes": [1.0, None, None, 0.9],
        "eval/distinct_2": [0.8, None, None, 0.7],
        "rollout/reward": [None, 0.1, 0.1, 0.3],
        "rollout/num_nodes": [None, 8, 8, 8],
        "train/num_tokens": [None, 100, 50, 25],
    }
)


def material(*, version="3", rate=0.6, decision="", reasons="", **changes):
    """A version with everything that a report can show."""
    spans = tuple(Interval(value, value - 0.1, value + 0.1) for value in (0.3, rate))
    turns = TurnRates(spans, Interval(0.4, 0.3, 0.5))
    summary = VersionSummary(
        version, (), "2026-01-02T03:04:05+00:00", "dpo", "0", (rate, rate, rate), 0.1,
        decision, reasons, "", "ab" * 16,
    )  # fmt: skip
    data = DataUsed("valid", "data/valid", "d1" * 18, "4f1c.dir", 40)
    code = {"git.commit": "c0ffee" * 4, "git.dirty": "true", "version.torch": "2.13"}
    lineage = Lineage(summary, "11" * 32, "22" * 32, "33" * 32, "profanity", (data,), code, ("1",))
    trained = TrainingRecord(
        "33" * 32, "11" * 32, 2, 3, "plain", "fp32", "fp32", 0, 0, "all steps done", None, None, ()
    )
    found = Material(
        model_name="attacker",
        lineage=lineage,
        experiment_id="1",
        params={"prompts": {"source": "builtin"}, "models": {"target": {"source": "builtin"}}},
        evaluation=examined(rate=rate),
        training=trained,
        steps=STEPS,
        table=prompt_table(rate=rate, baseline=0.2),
        turns=TurnRecord(turns, turns),
        findings=(Finding("0.90", "p1", "", (("Y·· a··", "N·"),)),),
        data={"validation": {"num_rows": 9, "num_rejected": 2}},
        seconds=75.0,
        server="http://127.0.0.1:5000",
    )
    return replace(found, **changes)
