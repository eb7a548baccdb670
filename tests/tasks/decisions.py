"""Decisions about candidates whose examinations have known results."""

import json

from registry_project import prompt_table, register, write_checkpoint, write_reports

from astra_core.rollout import Prompt
from tasks.params.schema import Params
from tasks.promotion.decision import promote_attacker
from tasks.tracking.registry.versions import aliases_of
from tasks.tracking.runs import connect

PARAMS = Params()


def fought(rates, seen=None, strategies=None):
    """What examines attackers whose checkpoints have these seeds; notes who met which prompts."""

    def evaluate(folder, prompts):
        seed = int(json.loads((folder / "astra.json").read_text())["digest"][:2])
        if seen is not None:
            seen.append((seed, [prompt.prompt_id for prompt in prompts]))
        table = prompt_table(rate=rates[seed], baseline=0.0).query("role == 'attacker'")
        if strategies:
            table = table.assign(hit_strategies=strategies[seed])
        return {}, table

    return evaluate


def promote(**named):
    means = {
        "evaluate": fought({0: 0.6, 1: 0.9, 2: 1.0}),
        "draw": lambda number: [Prompt(f"p{number}", "why now")],
    }
    return promote_attacker(PARAMS, **(means | named))


def register_another(project, seed, **reports):
    """A second candidate, from a checkpoint and a training of its own."""
    write_checkpoint(project / "models" / "attacker", seed=seed)
    write_reports(project, run_key=f"{seed:04d}" * 16, **reports)
    return register()


def aliases():
    return aliases_of(connect(), "attacker")


def tags(version):
    return connect().get_model_version("attacker", version).tags
