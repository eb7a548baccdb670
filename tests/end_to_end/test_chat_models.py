"""Attacker and target are chat models in folders, each with its template: prompts to promotion."""

import shutil

import pyarrow.parquet as pq
import pytest
from project import ROOT, run_in
from shared import finished_project
from tiny_chats import MARKS, chat_model

pytestmark = [pytest.mark.wide, pytest.mark.timeout(1800)]

ATTACKER = "my/attacker"
TARGET = "my/chat-model"
STAGES = ("prompts", "validation", "models", "rollouts", "training", "evaluation", "promotion")
# A user's words beside the preset; the rest keeps what a byte a token costs small.
SET = (
    f"models.target.path={TARGET}",
    f"models.attacker={{source: folder, path: {ATTACKER}}}",
    "system.attacker.format=template",
    "system.max_context_tokens=450",
    "system.response.max_new_tokens=8",
    "rollouts.num_prompts=3",
    "rollouts.sampler.options.tree_width=2",
    "rollouts.sampler.options.num_responses=1",
    "training.training_steps=2",
    "training.num_episodes_per_experience=2",
    "training.keep=last",
    "evaluation.num_prompts=6",
    "evaluation.num_training_prompts=2",
    "evaluation.num_rollouts=1",
    "promotion.min_prompts=2",
)


@pytest.fixture(scope="module")
def attacked(tmp_path_factory):
    """The project after ``astra run --preset local_chat``, and what that printed."""
    folder = tmp_path_factory.mktemp("chats") / "project"
    finished_project(tmp_path_factory).copy_after(folder, "prompts", "validation")
    shutil.copytree(ROOT / "params", folder / "params")
    chat_model(3).save(folder / ATTACKER)
    chat_model(5).save(folder / TARGET)
    own = [word for value in SET for word in ("--set", value)]
    done = run_in(folder, "-m", "flows.cli", "run", "--preset", "local_chat", *own)
    return folder, done.stdout


def test_every_stage_goes_through_and_a_second_run_has_nothing_to_do(attacked):
    folder, said = attacked
    again = run_in(folder, "-m", "flows.cli", "run").stdout

    assert [stage for stage in STAGES if f"\n{stage} " not in f"\n{said}"] == []
    assert 7 == again.count("up to date\n")
    assert "up to date" in run_in(folder, "-m", "dvc", "status").stdout


def test_the_attacker_has_learned_and_is_a_chat_model_that_others_can_load(attacked):
    from mlflow import MlflowClient
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder, _ = attacked
    model = AutoModelForCausalLM.from_pretrained(folder / "models/attacker")
    tokenizer = AutoTokenizer.from_pretrained(folder / "models/attacker")
    before = AutoModelForCausalLM.from_pretrained(folder / ATTACKER)
    asked = [{"role": "user", "content": "why now"}]

    assert "<|im_start|>" in tokenizer.apply_chat_template(asked, tokenize=False)
    pairs = zip(model.parameters(), before.parameters(), strict=True)
    assert not all(new.equal(old) for new, old in pairs)
    (version,) = MlflowClient(f"sqlite:///{folder}/mlflow.db").search_model_versions(
        "name = 'attacker'"
    )
    assert "1" == str(version.version)


def test_no_mark_of_a_template_is_in_what_was_said(attacked):
    folder, _ = attacked
    rows = pq.read_table(folder / "data/rollouts/rollouts.parquet").to_pylist()
    texts = [row["probe_text"] for row in rows]
    texts += [reply for row in rows for reply in row["response_texts"]]

    assert texts
    assert [text for text in texts if any(mark in text for mark in MARKS)] == []


def test_a_moved_project_takes_its_models_along(attacked):
    folder, _ = attacked
    moved = folder.rename(folder.parent / "elsewhere")
    try:
        status = run_in(moved, "-m", "dvc", "status").stdout
        again = run_in(moved, "-m", "dvc", "repro", "--force", "--single-item", "rollouts").stdout
        after = run_in(moved, "-m", "dvc", "status").stdout
    finally:
        moved.rename(folder)

    assert "up to date" in status
    assert "Running stage 'rollouts'" in again
    assert "up to date" in after
