"""A tiny System of several agents, and a training of them."""

import torch
from tiny_training import EXAMINATION, configured, sampler_of

from astra_core.config import Choice, SystemConfiguration
from astra_core.evaluator import Evaluator
from astra_core.rewards.adversarial import AdversarialReward
from astra_core.system import System
from astra_core.training.checkpoint import CheckpointStore
from astra_core.training.team import build_algorithm
from astra_core.training.trainer import Trainer
from astra_parts.testing import tiny_language_model, tiny_prompts

ROLES = ["opener", "presser"]


def agents_config(roles=ROLES, **agents):
    """Who plays, and what each agent has; ``presser={"model": "own"}``."""
    short = {"max_new_tokens": 3}
    record = {
        "max_context_tokens": 64,
        "probe": short,
        "response": short,
        "tokens_per_batch": 512,
        "scorer": Choice(name="phrases", options={"phrases": ["bad", "worse"]}).model_dump(),
        "roles": list(roles),
        "agents": agents,
    }
    return SystemConfiguration.read(record, where="system")


def agents_system(folder, config, *, attacker=None, is_trained=True):
    """A System of tiny models, loaded from folders below ``folder``."""
    base = folder / "tiny"
    if not base.exists():
        tiny_language_model(1).save(base)
    paths = {"attacker": attacker or base, "target": base, "reference": base}
    return System.load(config, **paths, is_trained=is_trained)


DPO = {"name": "dpo", "options": {"margin": 0.0}}


def agents_trainer(
    folder,
    config,
    *,
    store=None,
    is_evaluated=False,
    first_graphs=None,
    algorithm_choice=DPO,
    kind=Trainer,
    **changes,
):
    """A Trainer of these agents, as a new process would build it."""
    torch.manual_seed(0)
    settings = configured(algorithm=algorithm_choice, **changes)
    system = agents_system(folder, config)
    reward = AdversarialReward(AdversarialReward.Options())
    evaluator = Evaluator(EXAMINATION, prompts=tiny_prompts(4), reward=reward, seed=9)
    return kind(
        settings,
        sampler_of(system),
        build_algorithm(settings, system),
        evaluator=evaluator if is_evaluated else None,
        store=CheckpointStore(store, keep=5) if store else None,
        first_graphs=first_graphs,
    )


def weights(model):
    """A copy of the weights by name."""
    return {name: p.detach().clone() for name, p in model.model.named_parameters()}


def changed(before, model):
    """The names of the weights that differ from a copy."""
    now = weights(model)
    return {name for name, weight in before.items() if not torch.equal(weight, now[name])}
