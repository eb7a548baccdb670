import json
import shutil
from pathlib import Path

import pytest
from each_row import each_row
from outside_calls import outside_calls
from tiny_training import weights_of

from astra_core.config import (
    Choice,
    EvaluationConfiguration,
    GenerationConfiguration,
    SystemConfiguration,
    TrainingConfiguration,
)
from astra_core.errors import ConfigurationError, DataError
from astra_core.models.language_model import LanguageModel
from astra_core.rollout import Prompt
from astra_core.training.trainer import Trainer
from astra_parts.presets import Assembly, hf_configuration, hf_trainer
from astra_parts.testing import tiny_language_model, tiny_prompts

CASES = json.loads(
    (Path(__file__).parents[1] / "vectors" / "astra_config_defaults.json").read_text("utf-8")
)["cases"]
SHORT = GenerationConfiguration(max_new_tokens=3)
SMALL = Assembly(
    system=SystemConfiguration(
        max_context_tokens=64,
        probe=SHORT,
        response=SHORT,
        scorer=Choice(name="phrases", options={"phrases": ["bad", "worse"]}),
    ),
    evaluation=EvaluationConfiguration(num_rollouts=2, depth=1, num_resamples=50),
)
TEXTS = [prompt.text for prompt in tiny_prompts(6)]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    tiny_language_model(seed=1).save(folder / "attacker")
    tiny_language_model(seed=2).save(folder / "target")
    return folder


@pytest.fixture
def folders(models, tmp_path):
    return Path(shutil.copytree(models, tmp_path, dirs_exist_ok=True))


def built(folders, *, assembly=SMALL, prompts=TEXTS, **changes):
    config = hf_configuration(**{"training_steps": 2, "lr": 0.01, "eval_every": 1, **changes})
    return hf_trainer(
        folders / "attacker",
        folders / "target",
        prompts,
        dev_prompts=TEXTS[:3],
        folder=folders / "checkpoints",
        config=config,
        assembly=assembly,
    )


def test_the_preset_departs_from_the_defaults_only_in_its_own_numbers():
    preset, default = hf_configuration().model_dump(), TrainingConfiguration().model_dump()

    assert {
        "lr",
        "batch_size",
        "training_steps",
        "num_episodes_per_experience",
        "eval_every",
        "checkpoint",
    } == {key for key in preset if preset[key] != default[key]}
    assert Assembly().system == SystemConfiguration()
    assert Assembly().evaluation == EvaluationConfiguration()


@each_row(
    ("name", "config"),
    [
        ("TrainingConfiguration", TrainingConfiguration()),
        ("HFASTConfiguration", hf_configuration()),
    ],
)
def test_configurations_have_the_numbers_of_astra_rl(name, config):
    (theirs,) = (case[name] for case in CASES if name in case)
    ours = {field: getattr(config, field) for field in theirs}

    assert theirs == {**ours, "optimizer": ours["optimizer"].name}


def test_a_change_is_checked_like_a_line_of_params():
    assert 5 == hf_configuration(training_steps=5).training_steps
    assert 3 == hf_configuration(optimizer={"name": "sgd"}, warmup_steps=3).warmup_steps
    with pytest.raises(ConfigurationError, match="did you mean 'batch_size'"):
        hf_configuration(batchsize=5)


@pytest.mark.real
def test_the_preset_trains_examines_and_keeps_only_what_was_better(folders):
    trainer = built(folders)
    untrained = weights_of(trainer)
    progress = trainer.train()
    best = trainer.store.model(trainer.best.model)

    assert [0, 1, 2] == [point.training_step for point in progress.evaluations]
    assert trainer.best.value == max(p.metrics[trainer.best.metric] for p in progress.evaluations)
    assert progress.step > 0
    assert (weights_of(trainer) != untrained) == (trainer.best.training_step > 0)
    # With its tokenizer, so that any tool can load it.
    assert LanguageModel.load(best).encode(TEXTS[0]) == trainer.sampler.system.attacker.encode(
        TEXTS[0]
    )


@pytest.mark.real
def test_a_stopped_run_of_the_preset_continues(folders):
    first = built(folders, training_steps=1)
    first.train()
    second = built(folders, training_steps=2)

    assert second.resume()
    assert 1 == second.progress.training_step
    assert 2 == second.train().training_step


def test_what_cannot_work_is_refused_before_weights_load(folders):
    narrow = Assembly(sampler=Choice(name="tree", options={"tree_width": 1}))
    with pytest.raises(ConfigurationError, match="tree_width must be at least 2"):
        hf_trainer("no/model", "no/model", TEXTS, dev_prompts=TEXTS, folder="x", assembly=narrow)
    with pytest.raises(DataError, match="at least one prompt"):
        hf_trainer("no/model", "no/model", TEXTS, dev_prompts=[], folder="x")


def test_a_trainer_and_an_algorithm_are_chosen_by_name(folders):
    path = {"name": "astra_core.training.trainer:Trainer"}
    trainer = built(folders, trainer=path, algorithm={"name": "ppo"})

    assert type(trainer) is Trainer
    assert "PPO" == type(trainer.algorithm).__name__


@pytest.mark.parametrize("place", ["my/attaker", "my/target"])
def test_a_folder_that_is_missing_is_reported_at_once_and_nobody_is_asked(folders, place):
    names = {"my/attaker": (place, folders / "target"), "my/target": (folders / "attacker", place)}
    with outside_calls() as hosts, pytest.raises(ConfigurationError, match="no such folder"):
        hf_trainer(*names[place], TEXTS, dev_prompts=TEXTS, folder=folders / "run")

    assert [] == hosts


@pytest.mark.real
def test_a_whole_run_of_the_preset_asks_nobody(folders):
    system = SMALL.system.model_copy(update={"scorer": Choice(name="profanity")})
    around = SMALL.model_copy(update={"system": system})
    options = {"training_steps": 1, "lora": {"rank": 2}, "schedule": {"name": "transformers"}}
    with outside_calls() as hosts:
        trainer = built(folders, assembly=around, **options)
        trainer.train()
        assert built(folders, assembly=around, **options).resume()
        trainer.sampler.system.attacker.save(folders / "trained")
        LanguageModel.load(folders / "trained")

    assert [] == hosts


def test_a_model_of_the_hub_is_named_as_such(folders):
    with outside_calls() as hosts, pytest.raises(ConfigurationError, match="must be named 'hub:"):
        hf_trainer(
            "hub:owner/name", folders / "target", TEXTS, dev_prompts=TEXTS, folder=folders / "run"
        )

    assert [] == hosts


def test_a_prompt_may_have_metadata_and_several_runs(folders):
    prompts = [TEXTS[0], Prompt.of(TEXTS[1], {"difficulty": 2})]
    assembly = SMALL.model_copy(update={"runs_per_prompt": 2})
    trainer = built(folders, assembly=assembly, prompts=prompts)
    graphs = trainer.harness.experience(0).graphs

    assert {0, 1} == {graph.run_id for graph in graphs}
    assert [{}, {"difficulty": 2}] == [prompt.metadata for prompt in trainer.sampler.prompts]
    assert 2 * trainer.config.num_episodes_per_experience == len(graphs)


def test_runs_are_compared_only_where_there_are_several(folders):
    runs = {"name": "grpo", "options": {"compare": "runs"}}
    with pytest.raises(ConfigurationError, match="runs_per_prompt must be at least 2"):
        built(folders, algorithm=runs)
    built(folders, algorithm=runs, assembly=SMALL.model_copy(update={"runs_per_prompt": 2}))


def test_the_words_of_astra_rl_mean_ours(folders):
    parts = {"dev_prompts": TEXTS[:2], "assembly": SMALL}
    names = (folders / "attacker", folders / "target", TEXTS)
    trainer = hf_trainer(*names, **parts, ckpt_dir=folders / "checkpoints", eval_every=7)

    assert (7, 1e-5) == (trainer.config.eval_every, trainer.config.lr)
    assert folders / "checkpoints" == trainer.store.folder


class OwnConfig(TrainingConfiguration):
    """As the guide writes one: numbers of its own, given where it is built."""

    mine: int = 1

    def __init__(self):
        super().__init__(lr=1e-4, optimizer="sgd")


def test_a_configuration_may_have_a_constructor_of_its_own(folders):
    names = (folders / "attacker", folders / "target", TEXTS)
    theirs = {"ckpt_dir": folders / "checkpoints", "eval_every": 7}
    config = hf_trainer(
        *names, dev_prompts=TEXTS[:2], config=OwnConfig(), assembly=SMALL, **theirs
    ).config

    assert (7, 1e-4, "sgd", 1) == (config.eval_every, config.lr, config.optimizer.name, config.mine)


@each_row(
    ("theirs", "words"),
    [
        ({}, "must get one folder, or ckpt_dir, for its checkpoints, got none"),
        ({"folder": "x", "ckpt_dir": "y"}, "got both"),
        ({"folder": "x", "environment": 5}, r"got environment=; .*Assembly\(sampler="),
        ({"folder": "x", "algorithm": 5}, r"got algorithm=; .*hf_configuration\(algorithm="),
        ({"folder": "x", "use_wandb": True}, "got use_wandb=; known are"),
        ({"folder": "x", "eval_every": 0}, "training.eval_every"),
    ],
)
def test_a_word_that_has_another_place_is_one_line(theirs, words):
    with pytest.raises(ConfigurationError, match=words) as caught:
        hf_trainer("no/model", "no/model", TEXTS, dev_prompts=TEXTS, **theirs)

    assert 1 == len(str(caught.value).splitlines())


@each_row("place", ["prompts", "dev_prompts"])
def test_one_text_is_no_list_of_prompts(place):
    given = {"prompts": ["you are late"], "dev_prompts": ["why now"], place: "you are late"}
    with pytest.raises(ConfigurationError, match="prompts must be a list, got one text of 12"):
        hf_trainer("no", "no", given["prompts"], dev_prompts=given["dev_prompts"], folder="no")
