"""A tiny training run, for the tests of the Trainer."""

import torch

from astra_core.config import (
    Choice,
    EvaluationConfiguration,
    GenerationConfiguration,
    SystemConfiguration,
    TrainingConfiguration,
)
from astra_core.evaluator import Evaluator
from astra_core.registry import build
from astra_core.rewards.adversarial import AdversarialReward
from astra_core.samplers.tree import TreeSampler
from astra_core.training.checkpoint import CheckpointStore
from astra_core.training.trainer import Trainer
from astra_parts.testing import tiny_graph, tiny_node, tiny_prompts, tiny_system

SHORT = {
    "training_steps": 3,
    "num_episodes_per_experience": 2,
    "batch_size": 4,
    "lr": 0.01,
    "eval_every": 2,
    "early_stopping": {},
    "kl": {"max_per_experience_nats": 10.0},
    "checkpoint": {"save_every": 1, "keep": 5},
}
EXAMINATION = EvaluationConfiguration(num_rollouts=2, depth=1, num_resamples=20)
WORDS = GenerationConfiguration(max_new_tokens=3)
"""What a run costs is how many tokens it says, one after the other."""
TALK = SystemConfiguration(max_context_tokens=64, probe=WORDS, response=WORDS, tokens_per_batch=512)


WORTH = {0.9: (2, 3, 0), 0.1: (6, 7, 0)}


def _turns(*after):
    """Two turns that say something else and are worth something else."""
    good, bad = (tiny_node(score, *after, probe_ids=ids) for score, ids in WORTH.items())
    return good, bad


class Ready(TreeSampler):
    """Has its rollouts at hand, three pairs of each prompt, for what needs no sampling."""

    def roll_out(self, prompts, *, iteration):
        turns = _turns(*_turns())
        return [tiny_graph(*turns, prompt=prompt, iteration=iteration) for prompt in prompts]


def configured(**changes):
    """The configuration of a run of three steps, read as from params.yaml."""
    return TrainingConfiguration.read({**SHORT, **changes}, where="training")


def mild_reward():
    """Of siblings that differ, whatever their likelihood under models of random weights."""
    return AdversarialReward(AdversarialReward.Options(nll_weight=0.1, nll_floor=3.0))


def sampler_of(system, *, seed=1, kind=TreeSampler, reward=None):
    return kind(
        TreeSampler.Options(tree_width=3, tree_depth=2, num_responses=1),
        system=system,
        prompts=tiny_prompts(5),
        reward=reward or mild_reward(),
        seed=seed,
    )


def trainer_of(
    config,
    folder=None,
    *,
    algorithm=None,
    is_evaluated=True,
    first_graphs=None,
    world=None,
    device="cpu",
    sampler=TreeSampler,
    trainer=Trainer,
    reward=None,
    layers=1,
    **options,
):
    """A Trainer as a new process would build it."""
    torch.manual_seed(0)
    system = tiny_system(1, config=TALK, layers=layers)
    for part in (system.attacker, system.target.language_model, system.reference):
        part.model.to(device).tie_weights()
    choice = config.algorithm.model_copy(update={"options": options})
    evaluator = Evaluator(EXAMINATION, prompts=tiny_prompts(4), reward=mild_reward(), seed=9)
    return trainer(
        config,
        sampler_of(system, kind=sampler, reward=reward),
        algorithm(algorithm.Options(), system=system)
        if algorithm
        else build("algorithm", choice, system=system),
        evaluator=evaluator if is_evaluated else None,
        store=CheckpointStore(folder, keep=config.checkpoint.keep) if folder else None,
        first_graphs=first_graphs,
        world=world,
    )


def weights_of(trainer):
    """The attacker's weights as bytes."""
    model = trainer.sampler.system.attacker.model
    return b"".join(p.detach().cpu().numpy().tobytes() for p in model.parameters())


def choice(name, **options):
    return Choice(name=name, options=options).model_dump(mode="json")


def assert_same_state(some, others):
    assert some.step == others.step
    assert some.record == others.record
    assert some.tensors.keys() == others.tensors.keys()
    for name, tensor in some.tensors.items():
        assert torch.equal(tensor, others.tensors[name]), name
