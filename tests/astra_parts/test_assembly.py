import math
from dataclasses import replace

import pytest
import torch
from tiny_folders import tiny_folders, torch_as_before

from astra_core.config import (
    Choice,
    EvaluationConfiguration,
    GenerationConfiguration,
    MachineConfiguration,
    RolloutsConfiguration,
    SystemConfiguration,
    TrainingConfiguration,
)
from astra_core.errors import ConfigurationError
from astra_core.targets.causal_lm import speaker_of
from astra_core.training.checkpoint import CheckpointStore
from astra_parts import assembly
from astra_parts.assembly import (
    ModelFolders,
    build_evaluator,
    build_sampler,
    build_trainer,
    load_system,
)
from astra_parts.testing import tiny_language_model, tiny_prompts

SHORT = GenerationConfiguration(max_new_tokens=6)
PHRASES = Choice(name="phrases", options={"phrases": ["bad"]})
SYSTEM = SystemConfiguration(max_context_tokens=64, probe=SHORT, response=SHORT, scorer=PHRASES)
REWARD = Choice(name="adversarial")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return tiny_folders(tmp_path_factory.mktemp("models"))


@pytest.fixture(autouse=True)
def _as_before():
    with torch_as_before():
        yield


def loaded(folders, **machine):
    return load_system(SYSTEM, folders, machine=MachineConfiguration(**machine))


def test_models_are_on_the_cpu_on_deterministic_kernels_by_default(folders):
    system = loaded(folders)

    models = (system.attacker, speaker_of(system.target), system.reference)
    assert {"cpu"} == {model.device.type for model in models}
    assert torch.are_deterministic_algorithms_enabled()
    loaded(folders, deterministic=False)
    assert not torch.are_deterministic_algorithms_enabled()


def test_a_plugin_that_draws_from_the_global_generator_draws_the_same_with_a_seed(folders):
    drawn = []
    for seed in (3, 3, 4):
        load_system(SYSTEM, folders, seed=seed)
        drawn.append(float(torch.rand(())))

    assert drawn[0] == drawn[1] != drawn[2]


def test_no_time_is_spent_on_memory_that_is_written_over(folders):
    loaded(folders)

    assert not torch.utils.deterministic.fill_uninitialized_memory


@pytest.mark.real
def test_the_number_of_threads_is_the_one_asked_for(folders):
    loaded(folders, num_threads=2)
    assert 2 == torch.get_num_threads()

    loaded(folders, num_threads=0)
    assert 1 == torch.get_num_threads()


def test_the_process_keeps_the_memory_that_it_frees(folders, monkeypatch):
    asked = []
    monkeypatch.setattr(assembly, "keep_freed_memory", lambda: not asked.append("keep"))
    loaded(folders)

    assert ["keep"] == asked


def test_cuda_without_a_device_is_refused_before_any_weight_loads(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    # The folders are not there, so that reading them would be the error.
    missing = ModelFolders(tmp_path / "a", tmp_path / "b", tmp_path / "c")

    with pytest.raises(
        ConfigurationError, match=r"machine\.device must be 'cpu' or 'auto'"
    ) as told:
        loaded(missing, device="cuda")
    assert "\n" not in str(told.value)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_weights_are_sent_to_the_device_that_is_asked_for(folders, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)

    for device in ("cuda", "auto"):
        with pytest.raises((AssertionError, RuntimeError), match=r"CUDA|NVIDIA"):
            loaded(folders, device=device)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("device", ["cuda", "auto"])
def test_models_are_on_the_cuda_device(folders, device):
    system = loaded(folders, device=device)

    models = (system.attacker, speaker_of(system.target), system.reference)
    assert {"cuda"} == {model.device.type for model in models}


def test_folders_are_those_of_the_roles_but_for_another_attacker(folders, tmp_path):
    paths = {"attacker": folders.attacker, "target": folders.target, "reference": folders.reference}

    assert folders == ModelFolders.of(paths)
    other = ModelFolders.of(paths, attacker=folders.target)
    assert (folders.target, folders.target, folders.reference, True) == (
        other.attacker,
        other.target,
        other.reference,
        other.may_differ,
    )


def test_an_attacker_of_another_tokenizer_is_evaluated_without_a_reference(folders, tmp_path):
    """A champion of another base model, which a candidate of the present one meets in a duel."""
    tiny_language_model(seed=5, vocabulary=None).save(tmp_path / "other")
    paths = {"attacker": folders.attacker, "target": folders.target, "reference": folders.reference}
    other = ModelFolders.of(paths, attacker=tmp_path / "other")
    evaluation = EvaluationConfiguration(num_prompts=2, num_resamples=20)
    with pytest.raises(ConfigurationError, match=r"models\.reference must share the attacker's"):
        load_system(SYSTEM, replace(other, may_differ=False))
    system = load_system(SYSTEM, other.resolve_paths())
    evaluator = build_evaluator(evaluation, REWARD, prompts=tiny_prompts(2), seed=0)
    figures = evaluator.evaluate(system).figures

    assert math.isnan(figures["kl_nats"])
    assert math.isfinite(figures["probe_perplexity"])


@pytest.mark.real
def test_the_parts_make_a_trainer_that_trains(folders, tmp_path):
    training = TrainingConfiguration(training_steps=1, num_episodes_per_experience=2, lr=0.01)
    system = load_system(SYSTEM, folders, is_trained=True)
    prompts = tiny_prompts(4)
    rollouts = RolloutsConfiguration(sampler=Choice(name="tree", options={"tree_width": 2}))
    sampler = build_sampler(rollouts, REWARD, system=system, prompts=prompts, seed=3)
    evaluation = EvaluationConfiguration(num_rollouts=1, depth=1, num_resamples=20)
    trainer = build_trainer(
        training,
        sampler,
        evaluator=build_evaluator(evaluation, REWARD, prompts=prompts[:2], seed=3),
        store=CheckpointStore(tmp_path, keep=1),
    )
    trainer.train()

    assert 1 == trainer.progress.training_step
    assert 2 == len(trainer.progress.evaluations)


def test_the_share_of_failures_that_stops_a_sampler_is_the_configured_one(folders):
    system = loaded(folders)
    rollouts = RolloutsConfiguration(max_failed_fraction=0.25, runs_per_prompt=3)
    sampler = build_sampler(rollouts, REWARD, system=system, prompts=tiny_prompts(2), seed=0)

    assert 0.25 == sampler.max_failed_fraction
    assert 3 == sampler.runs_per_prompt
