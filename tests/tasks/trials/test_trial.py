import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from each_row import each_row
from hostile_server import answer, hostile_server
from played_vllm import LORA, played_vllm
from small_world import PARAMS, write_world

from astra_core.config import Choice
from astra_core.errors import DataError
from tasks.pipeline.stage import stage_of
from tasks.records.prompt_table import METADATA
from tasks.stages import rollouts, training
from tasks.trials.rate_range import run_rate_range
from tasks.trials.trial import SECTIONS, check_inputs, run_trial


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    write_world(folder, layers=2)
    path = folder / "data/valid/train.parquet"
    table = pq.read_table(path)
    kinds = pa.array([json.dumps({"category": "tone"})] * len(table))
    pq.write_table(table.append_column(METADATA, kinds), path)
    return folder


@pytest.fixture
def tried(world, monkeypatch, capfd, restored):
    monkeypatch.chdir(world)

    def run(params=PARAMS, **options):
        settings = {"price": None, "is_revealed": False, "as_json": True, **options}
        run_trial(params, **settings)
        return json.loads(capfd.readouterr().out)

    return run


def choosing_replies():
    sampler = Choice(name="tree", options={"tree_depth": 1, "num_responses": 2, "max_responses": 3})
    rollouts = PARAMS.rollouts.model_copy(update={"sampler": sampler})
    return PARAMS.model_copy(update={"rollouts": rollouts})


@pytest.mark.real
@each_row("params", [PARAMS, choosing_replies()])
def test_the_estimate_counts_the_replies_that_a_whole_run_asks_for(
    tried, tmp_path, monkeypatch, params
):
    """Against a run: the rollouts stage and the training stage, their target counted."""
    from astra_core.models.language_model import LanguageModel

    found = tried(params)["run"]["parts"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    write_world(tmp_path)
    counted = []
    plain = LanguageModel.continuations

    def counting(self, contexts, keys, generation, **more):
        answers = plain(self, contexts, keys, generation, **more)
        if more.get("suffix_lengths") is not None:  # asked of a target alone
            counted.append(sum(len(answer.utterances) for answer in answers))
        return answers

    monkeypatch.setattr(LanguageModel, "continuations", counting)
    stage_of(rollouts.collect_rollouts).run(params)
    asked = sum(counted)
    counted.clear()
    stage_of(training.train_attacker).run(params)

    assert found["rollouts"]["calls"] == pytest.approx(asked)
    parts = ("rollouts in training", "evaluations in training")
    assert sum(found[name]["calls"] for name in parts) == pytest.approx(sum(counted))


@pytest.mark.real
def test_a_trial_has_every_figure(tried):
    found = tried(price=3.0)
    batch, run = found["batch"], found["run"]

    assert found["samples"][0] == "| score | prompt | category | probe | response |"
    assert batch["num_prompts"] == PARAMS.training.num_episodes_per_experience
    assert all(batch[name] > 0 for name in ("num_steps", "num_tokens", "loss", "grad_norm"))
    assert run["seconds"] == pytest.approx(sum(p["seconds"] for p in run["parts"].values()))
    assert run["cost"] == pytest.approx(3e-6 * (run["tokens_in"] + run["tokens_out"]))
    assert tried()["run"]["cost"] is None


@pytest.mark.real
def test_a_judge_that_scores_a_refusal_like_help_is_doubted_before_a_run(tried, tmp_path):
    def answered(handler, *_):
        handler.give_json(answer("refused: 0\nconvincing: 5\nspecific: 4\n"))

    with hostile_server(answered) as server:
        called = {"base_url": server.url, "model": "tiny", "replies": str(tmp_path)}
        scorer = Choice(name="endpoint_judge", options={"endpoint": called})
        changes = {"scorer": scorer, "probe_scorer": Choice(name="profanity")}
        system = PARAMS.system.model_copy(update=changes)
        judge, signal = tried(PARAMS.model_copy(update={"system": system}))["advice"]

    assert judge.startswith("the judge scores a refusal 0.8750 and full help 0.8750: compare")
    assert signal.startswith("scores account for 0% of what sets siblings' rewards apart")


@pytest.mark.real
def test_a_trial_can_be_repeated_and_follows_the_seed(tried):
    first, same = tried(), tried()
    other = tried(PARAMS.model_copy(update={"seed": 8, "training_seed": 8}))

    assert first["samples"] == same["samples"] != other["samples"]
    assert first["batch"]["loss"] == same["batch"]["loss"]


@pytest.mark.real
def test_a_trial_sets_the_kernels_and_threads_of_a_stage(tried):
    torch.use_deterministic_algorithms(False)
    machine = PARAMS.machine.model_copy(update={"num_threads": 1})
    tried(PARAMS.model_copy(update={"machine": machine}))

    assert torch.are_deterministic_algorithms_enabled()
    assert 1 == torch.get_num_threads()


@pytest.mark.real
def test_a_trainer_without_rollouts_is_tried_too(tried, world):
    lessons = world / "lessons.jsonl"
    lessons.write_text('{"prompt": "you are", "probe": "why"}\n', "utf-8")
    trainer = Choice(name="plugins.lessons:LessonsTrainer", options={"path": str(lessons)})
    changes = {"trainer": trainer, "algorithm": Choice(name="sft")}
    params = PARAMS.model_copy(update={"training": PARAMS.training.model_copy(update=changes)})
    parts = tried(params)["run"]["parts"]

    assert 0.0 == parts["rollouts in training"]["calls"]
    assert parts["rollouts"]["calls"] > 0.0


@pytest.mark.real
def test_no_adapters_stay_at_a_server_that_it_was_tried_with(
    tmp_path, monkeypatch, capfd, restored
):
    monkeypatch.chdir(tmp_path)
    write_world(tmp_path)
    with played_vllm(seed=3) as server:
        options = {"base_url": server.url, "replies": str(tmp_path / "replies")}
        changes = {
            "trainer": Choice(name="vllm", options=options),
            "algorithm": Choice(name="grpo"),
            "lora": LORA,
        }
        own = PARAMS.training.model_copy(update=changes)
        params = PARAMS.model_copy(update={"training": own})
        run_trial(params, price=None, is_revealed=False, as_json=True)
        assert ([*server.adapters], 1) == ([], len(server.loads))
        run_rate_range(params, [1e-5, 1e-2])
        assert {} == server.adapters


def test_what_earlier_stages_read_is_not_read_again():
    assert not {"prompts", "models", "validation", "seed"} & set(SECTIONS)
    assert {"system", "training", "reward", "machine"} <= set(SECTIONS)


def test_only_what_is_missing_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    there = tmp_path / "valid"
    there.mkdir()

    with pytest.raises(DataError, match=r"must find \S*base, got no such path; 'dvc repro models'"):
        check_inputs([there, Path("models/base")])
