import json
import random

import pandas as pd
import pytest
import yaml
from each_row import each_row
from small_world import PARAMS, write_world

from astra_core.errors import ConfigurationError
from astra_core.models.pretrained import weights_digest
from tasks.params.schema import Params
from tasks.params.seeds import FOLLOWERS
from tasks.pipeline.order import find_stage, render

ROOTS = ({}, {"seed": 3}, {"seed": 3, "model_seed": None, "training_seed": None})
LEARNING = {"rollouts", "training", "evaluation", "registration"}


@each_row("record", ROOTS)
def test_seeds_that_are_null_or_left_out_follow_the_root(record):
    params = Params.read(record, where="")

    assert {record.get("seed", 0)} == {getattr(params, name) for name in FOLLOWERS}
    assert 0 == params.data_seed


def test_a_seed_of_its_own_stays_when_the_root_changes():
    params = Params.read({"seed": 3, "model_seed": 0, "data_seed": 5}, where="")

    assert (5, 0, 3) == (params.data_seed, params.model_seed, params.training_seed)


@each_row("root", [-1, None, True, "1"])
def test_a_wrong_root_is_reported_once(root):
    with pytest.raises(ConfigurationError) as caught:
        Params.read({"seed": root}, where="")

    assert 1 == len(str(caught.value).splitlines())


@each_row(
    ("seed", "readers"),
    [
        ("data_seed", {"prompts", "registration"}),
        ("model_seed", {"models", "registration"}),
        ("training_seed", LEARNING),
        ("seed", {"models"} | LEARNING),
    ],
)
def test_a_seed_makes_only_the_stages_that_draw_by_it_run_again(seed, readers):
    stages = yaml.safe_load(render())["stages"]

    assert readers == {name for name, entry in stages.items() if seed in entry["params"]}


def prompts_made(folder, source, **seeds):
    """Text and split of every prompt under these seeds, made by the stage itself."""
    record = {"prompts": source, **seeds}
    find_stage("prompts").run(Params.read(record, where=""))
    frames = [pd.read_parquet(path) for path in sorted((folder / "data/prompts").glob("*.parquet"))]
    return pd.concat(frames).set_index("text")["split"].to_dict()


@pytest.fixture
def source(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = random.Random(0)
    texts = [" ".join(f"word{rng.randrange(400)}" for _ in range(20)) for _ in range(300)]
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(texts), encoding="utf-8")
    return {"source": "file", "path": str(path)}


def test_no_seed_but_the_data_seed_moves_a_prompt_to_another_split(tmp_path, source):
    before = prompts_made(tmp_path, source)

    for seed in ("seed", "training_seed", "model_seed"):
        assert before == prompts_made(tmp_path, source, **{seed: 1}), seed
    # Half of what is dev under another data seed was trained on: why it follows nothing.
    moved = prompts_made(tmp_path, source, data_seed=1)
    assert set(before) == set(moved)
    assert before != moved


def test_the_data_seed_chooses_the_builtin_openers(tmp_path, source):
    builtin = {"source": "builtin", "num_builtin": 100}
    before = prompts_made(tmp_path, builtin)

    assert before == prompts_made(tmp_path, builtin, seed=1)
    assert set(before) != set(prompts_made(tmp_path, builtin, data_seed=1))


@pytest.mark.real
def test_the_model_seed_makes_another_builtin_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sizes = {"hidden_size": 16, "num_layers": 1, "num_heads": 2, "intermediate_size": 24}
    small = {"num_quarrels": 20, "num_dialogues": 20, "vocab_size": 300, **sizes}

    def digest(**seeds):
        record = {"models": {"builtin": small}, "machine": {"num_threads": 1}, **seeds}
        find_stage("models").run(Params.read(record, where=""))
        return weights_digest(tmp_path / "models/base/builtin")

    before = digest(seed=3)
    assert before == digest(model_seed=3, seed=1, training_seed=2, data_seed=4)
    assert before != digest(model_seed=4)


@pytest.mark.real
def test_the_training_seed_draws_other_rollouts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_world(tmp_path)

    def texts(**seeds):
        find_stage("rollouts").run(PARAMS.model_copy(update=seeds))
        table = pd.read_parquet(tmp_path / "data/rollouts/rollouts.parquet")
        return table["probe_text"].tolist()

    before = texts(training_seed=3)
    assert before == texts(training_seed=3, seed=1, model_seed=2, data_seed=4)
    assert before != texts(training_seed=4)
