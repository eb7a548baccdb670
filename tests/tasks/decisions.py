"""Decisions about candidates whose examinations have known results."""

import shutil

from registry_project import EVALUATION_KEY, prompt_table, seed_of, write_reports

from astra_core.files import read_json, write_json
from astra_core.models.folders import attacker_digest
from astra_core.rollout import Prompt
from tasks.params.schema import Params
from tasks.promotion.decision import promote_attacker
from tasks.promotion.examinations import REPORT_FILE, TABLE_FILE
from tasks.tracking.registry.evidence import evaluation_folder
from tasks.tracking.registry.versions import CHECKPOINT_DIGEST_TAG, EVALUATION_KEY_TAG, aliases_of
from tasks.tracking.store import connect

PARAMS = Params()


def fought(rates, seen=None, strategies=None):
    """What examines attackers whose checkpoints have these seeds; notes who met which prompts."""

    def evaluate(folder, prompts):
        seed = seed_of(folder)
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


def register_another(project, seed, *, table=None, **reports):
    """The second candidate or a later one, with what promotion reads of a registration.

    Args:
        project: The working folder.
        seed: What the checkpoint's note says, whose weights are the first's.
        table: The table of the examination, instead of that of the reports.
        reports: What the reports say.
    """
    client = connect()
    first = client.get_model_version("attacker", "1")
    weights = shutil.copytree(first.source, project / "mlruns" / f"copy{seed}")
    (note,) = weights.rglob("astra.json")
    digest = attacker_digest(note.parent)
    write_json(read_json(note) | {"value": float(seed)}, note)
    write_reports(project, run_key=f"{seed:04d}" * 16, **reports)
    if table is not None:
        table.to_parquet(project / "reports" / TABLE_FILE, index=False)
    run = client.create_run(client.get_run(first.run_id).info.experiment_id).info.run_id
    for name in (TABLE_FILE, REPORT_FILE):
        client.log_artifact(run, f"reports/{name}", evaluation_folder(EVALUATION_KEY))
    tags = {EVALUATION_KEY_TAG: EVALUATION_KEY, CHECKPOINT_DIGEST_TAG: digest}
    version = client.create_model_version("attacker", str(weights), run, tags=tags).version
    client.set_registered_model_alias("attacker", "candidate", version)


def aliases():
    return aliases_of(connect(), "attacker")


def tags(version):
    return connect().get_model_version("attacker", version).tags
