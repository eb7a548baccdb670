"""A project's folder as the stages before registration leave it, with an empty MLflow store."""

import functools
import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from astra_core.metrics.statistics import Interval
from astra_core.models.folders import attacker_digest
from tasks.params.schema import Params
from tasks.pipeline.stage import stage_of
from tasks.records.evaluation import EvaluationRecord
from tasks.records.receipt import RegistrationReceipt

RUN_KEY = "5f3a" * 16
EVALUATION_KEY = "e7" * 32
NUM_PROMPTS = 40
END = "<eos>"
UNKNOWN = "<unk>"
WORDS = [END, UNKNOWN, "you", "are", "a", "the", "cat", "dog", "what", "why", "very", "bad", "."]


@functools.cache
def _migrated_database() -> bytes:
    """An empty store; making its tables takes two seconds, so that is done once per process."""
    from mlflow import MlflowClient

    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "empty.db"
        MlflowClient(f"sqlite:///{database}").search_experiments()
        return database.read_bytes()


def enter_project(folder, monkeypatch, *, is_empty=True):
    """Makes ``folder`` the working folder, with an empty store and nothing of this machine's.

    ``is_empty=False`` keeps the store of a folder that was copied with one.
    """
    forget_machine(folder, monkeypatch)
    if is_empty:
        (folder / "mlflow.db").write_bytes(_migrated_database())
    return folder


def forget_machine(folder, monkeypatch):
    """Makes ``folder`` the working folder, with no settings of this machine."""
    monkeypatch.chdir(folder)
    for name in ("MLFLOW_TRACKING_URI", "DVC_STAGE", "DVC_EXP_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def without_pictures(monkeypatch):
    """Pictures and page of a version are half of its registration, and decide nothing."""
    import tasks.stages.registration

    monkeypatch.setattr(tasks.stages.registration, "renew_report", lambda *_, **__: None)


def write_checkpoint(folder, *, seed=0):
    """A Llama of a few thousand weights with a word tokenizer, and its astra.json."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
    from transformers.utils import logging

    logging.disable_progress_bar()
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    vocabulary = {word: index for index, word in enumerate(WORDS)}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    shutil.rmtree(folder, ignore_errors=True)
    PreTrainedTokenizerFast(
        tokenizer_object=words, eos_token=END, unk_token=UNKNOWN
    ).save_pretrained(folder)
    config = LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=64,
        bos_token_id=None,
        eos_token_id=0,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    write_note(folder, value=float(seed))
    return folder


def write_note(folder, **told):
    """Its astra.json, with the digest of what the folder holds now."""
    record = {"run_key": RUN_KEY, "metric": "eval/score_mean", **told}
    record["digest"] = attacker_digest(folder)
    (folder / "astra.json").write_text(json.dumps(record))


def seed_of(folder):
    """The seed that ``write_checkpoint`` was given."""
    return int(json.loads((folder / "astra.json").read_text())["value"])


def write_reports(
    folder, *, rate=0.6, baseline=0.2, key=EVALUATION_KEY, run_key=RUN_KEY, **figures
):
    """The reports of a training that ended at this attack success rate."""
    reports = folder / "reports"
    reports.mkdir(exist_ok=True)
    reports.joinpath("training_steps.csv").write_text(
        "step,training_step,iteration,train/loss,train/reward_mean,eval/attack_success_rate,"
        "eval/attack_success_rate_low,eval/attack_success_rate_high\n"
        "0,0,,,,0.2,0.1,0.3\n1,1,1,0.69,0.1,,,\n2,2,1,0.61,0.2,0.5,0.4,0.6\n"
    )
    first = {"metric": "eval/attack_success_rate", "value": 0.2}
    training = {
        "run_key": run_key,
        "checkpoint_digest": "00" * 32,
        "training_steps": 2,
        "optimizer_steps": 2,
        "engine": "plain",
        "training_precision": "fp32",
        "system_precision": "fp32",
        "num_nonfinite": 0,
        "num_empty_experiences": 0,
        "stopped_because": "all steps done",
        "first": first,
        "best": {**first, "training_step": 2},
        "evaluations": [],
    }
    table = prompt_table(rate=rate, baseline=baseline)
    examined = {
        "evaluation_key": key,
        "num_prompts": NUM_PROMPTS,
        "num_rollouts": 4,
        "depth": 2,
        "threshold": 0.5,
        "confidence": 0.95,
        "attacker": measured(rate) | figures,
        "baseline": measured(baseline),
        "lift": interval(rate - baseline),
    }
    for name, record in {
        "training": training,
        "evaluation": examined,
        "validation": {"success": True},
        "rollouts": {"rows": 4},
    }.items():
        reports.joinpath(f"{name}.json").write_text(json.dumps(record))
    (reports / "data_docs").mkdir(exist_ok=True)
    for name in ("prompts", "rollouts"):
        reports.joinpath(f"data_docs/{name}.html").write_text(f"<h1>{name}</h1>\n")
    table.to_parquet(reports / "evaluation_prompts.parquet", index=False)
    reports.joinpath("examples.md").write_text("| 0.9 | p1 | y·· a·· | b·· |\n")


def prompt_table(*, rate, baseline):
    """One row per prompt and role; a success rate of r means that the first share r succeeds."""
    ranks = np.arange(NUM_PROMPTS) / NUM_PROMPTS
    frames = [
        pd.DataFrame(
            {
                "prompt_id": [f"p{i:03d}" for i in range(NUM_PROMPTS)],
                "role": role,
                "success_rate": (ranks < share).astype(float),
                "clean_success_rate": (ranks < share).astype(float),
                "score_mean": np.where(ranks < share, 0.8, 0.1),
                "nonword_probe_rate": 0.05,
            }
        )
        for role, share in (("attacker", rate), ("baseline", baseline))
    ]
    return pd.concat(frames, ignore_index=True)


def measured(rate):
    """The figures of one attacker."""
    return {
        "attack_success_rate": interval(rate),
        "score_mean": interval(rate),
        "unique_probes": 0.97,
        "distinct_2": 0.6,
        "unique_probes_rarefied": 0.99,
        "distinct_2_rarefied": 0.7,
        "num_hits": 50,
        "top_strategy_share": 0.2,
        "nonword_probe_rate": 0.05,
        "probe_perplexity": 4.0,
        "kl_nats": 2.0,
        "vendi_score": None,
    }


def examined(*, rate=0.6, baseline=0.2, lift=None):
    """The record of an examination that ended at these success rates."""
    return EvaluationRecord(
        evaluation_key=EVALUATION_KEY,
        num_prompts=NUM_PROMPTS,
        num_rollouts=4,
        depth=2,
        threshold=0.5,
        confidence=0.95,
        attacker=_read(measured(rate)),
        baseline=_read(measured(baseline)),
        lift=Interval.read(interval(rate - baseline if lift is None else lift)),
    )


def _read(figures):
    return {
        name: Interval.read(value) if isinstance(value, dict) else value
        for name, value in figures.items()
    }


def receipt(**changes):
    """What registration leaves of the first version."""
    found = {
        "model_name": "attacker",
        "version": "1",
        "run_id": "ab" * 16,
        "experiment_id": "1",
        "tracking_uri": "sqlite:///mlflow.db",
        "checkpoint_digest": "c0" * 32,
    }
    return RegistrationReceipt(**found | changes)


def interval(value):
    return {"value": value, "low": value - 0.1, "high": value + 0.1}


def write_project(folder, *, seed=0, **reports):
    """Everything that registration reads."""
    write_checkpoint(folder / "models" / "attacker", seed=seed)
    base = folder / "models" / "base"
    base.mkdir(parents=True, exist_ok=True)
    entry = {"path": "target", "is_outside": False, "digest": "7a" * 32}
    roles = dict.fromkeys(("attacker", "target", "reference"), entry)
    base.joinpath("manifest.json").write_text(json.dumps(roles))
    for name in ("prompts", "valid", "rollouts"):
        (folder / "data" / name).mkdir(parents=True, exist_ok=True)
        pd.DataFrame({"prompt_id": ["p000", "p001"], "text": ["you are .", "why ?"]}).to_parquet(
            folder / "data" / name / "train.parquet", index=False
        )
    write_reports(folder, **reports)


def register(**changes):
    """The receipt of the stage, called as a plain function with the default parameters."""
    from tasks.stages.registration import register_attacker

    return stage_of(register_attacker).run(Params(**changes))


class Killed(BaseException):
    """The process is gone; nothing that catches errors may catch it."""


WRITES = (
    "create_experiment",
    "create_run",
    "log_batch",
    "log_inputs",
    "log_artifact",
    "log_artifacts",
    "create_logged_model",
    "log_model_artifacts",
    "finalize_logged_model",
    "log_outputs",
    "create_registered_model",
    "create_model_version",
    "set_registered_model_tag",
    "set_registered_model_alias",
    "delete_registered_model_alias",
    "set_model_version_tag",
    "set_tag",
    "update_run",
    "set_terminated",
)


def killed_after(num_writes, *, of=WRITES):
    """A real client that dies when its ``num_writes``-th write, among those named, has returned."""
    from mlflow import MlflowClient

    from tasks.tracking.store import tracking_uri

    class DyingClient(MlflowClient):
        left = num_writes

    def dying(name):
        def call(self, *arguments, **named):
            answer = getattr(MlflowClient, name)(self, *arguments, **named)
            DyingClient.left -= 1
            if DyingClient.left == 0:
                raise Killed
            return answer

        return call

    for name in of:
        setattr(DyingClient, name, dying(name))
    return DyingClient(tracking_uri())
