import math

import pytest
import torch
from played_vllm import played_vllm
from tiny_training import EXAMINATION, TALK, configured, sampler_of

from astra_core.config import SystemConfiguration
from astra_core.errors import AuthorizationError, ConfigurationError, RolloutError
from astra_core.evaluator import Evaluator
from astra_core.registry import build
from astra_core.rewards.adversarial import AdversarialReward
from astra_core.training.checkpoint import CheckpointStore
from astra_parts.engines.vllm_trainer import VllmTrainer
from astra_parts.testing import tiny_prompts, tiny_system


@pytest.fixture
def server():
    with played_vllm() as own:
        yield own


def trainer(url, folder, *, talk=TALK, shared=None, **changes):
    """A trainer as a new process would build it."""
    options = {"base_url": url, "replies": str(folder / "replies"), "retries": 0}
    options |= {"folder": str(shared)} if shared else {}
    settings = {
        "trainer": {"name": "vllm", "options": options},
        "lora": {"rank": 2},
        "algorithm": {"name": "grpo"},
        "training_steps": 2,
        "eval_every": 1,
        "lr": 0.1,
    }
    config = configured(**{**settings, **changes})
    system = tiny_system(1, config=talk)
    reward = AdversarialReward(AdversarialReward.Options())
    return VllmTrainer(
        config,
        sampler_of(system),
        build("algorithm", config.algorithm, system=system),
        evaluator=Evaluator(EXAMINATION, prompts=tiny_prompts(2), reward=reward, seed=9),
        store=CheckpointStore(folder / "run", keep=5),
    )


def weights(own):
    return own.sampler.system.attacker.model.state_dict()


@pytest.mark.real
def test_a_run_whose_server_dies_is_resumed_to_the_same_weights(server, tmp_path):
    whole = trainer(server.url, tmp_path / "whole")
    reports = list(whole.steps())
    # The untrained attacker and both that were trained; now it speaks itself.
    assert 3 == len({*server.loads})
    assert whole.sampler.system.attacker.elsewhere is None
    assert {} == server.adapters
    num_draws = server.paths.count("completions")
    server.start_again()
    server.paths.clear()

    def die(handler, body, number):
        if server.paths.count("completions") > num_draws // 2:
            handler.close_connection = True
        else:
            server.answer(handler, body, number)

    server.behave = die
    with pytest.raises(RolloutError, match="run again"):
        list(trainer(server.url, tmp_path / "cut").steps())
    server.behave = server.answer
    again = trainer(server.url, tmp_path / "cut")
    assert again.resume()
    assert reports[-1].loss == list(again.steps())[-1].loss
    for name, weight in weights(whole).items():
        assert torch.equal(weight, weights(again)[name]), name


def test_runs_that_share_a_folder_have_their_own_in_it(server, tmp_path):
    shared = tmp_path / "shared"
    theirs = shared / "astra-project"
    theirs.mkdir(parents=True)
    runs = [trainer(server.url, tmp_path / name, shared=shared) for name in ("one", "two")]
    for own in runs:
        own.dry_run()
    assert 2 == len(server.adapters) == len({*server.adapters.values()})
    for own in runs:
        own.close()
    assert {} == server.adapters
    assert [theirs] == list(shared.iterdir())


@pytest.mark.parametrize("shift", [0.0, 0.05])
def test_the_gap_between_both_engines_is_what_the_correction_weighs(server, tmp_path, shift):
    server.shift = shift
    own = trainer(server.url, tmp_path, staleness={"correction": "token"}, evaluate="none")
    experience = own.harness.experience(1)
    own.speaker.close()
    assert math.exp(-shift) == pytest.approx(
        experience.metrics["rollout/importance_ratio"], abs=1e-3
    )
    weight = experience.graphs[0].children[0].probe.weights[0]
    assert math.exp(-shift) == pytest.approx(weight, abs=1e-3)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"lora": None}, r"training\.lora must be given for trainer 'vllm', got null"),
        (
            {"talk": SystemConfiguration(roles=("a",), agents={"a": {}})},
            r"system\.roles must be empty for trainer 'vllm', got \['a'\]",
        ),
    ],
)
def test_what_a_server_cannot_mirror_is_refused(tmp_path, changes, reason):
    with pytest.raises(ConfigurationError, match=reason):
        trainer("http://127.0.0.1:1/v1", tmp_path, **changes)


def test_no_other_host_is_asked_without_leave(tmp_path):
    with pytest.raises(AuthorizationError, match=r"^trainer 'vllm': authorization must name"):
        trainer("http://models.example.org/v1", tmp_path)
