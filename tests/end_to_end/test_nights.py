"""Two nights of training from the champion: the flow, the real DVC and a registry that moves."""

import json

import pytest
from project import run_in, set_params
from shared import finished_project

from flows.training import WORKSPACES

pytestmark = [pytest.mark.wide, pytest.mark.timeout(1800)]

# As the deployment calls it, and what its page would say.
NIGHT = """\
from flows.servers.environment import quiet_run
with quiet_run():
    from flows.training import red_team_training
    state = red_team_training(warm_start="champion", seed="date", return_state=True)
    print(f"state {state.name}: {state.message}")
    print(f"decided about {state.result().candidate_version}")
"""


@pytest.fixture(scope="module")
def nights(tmp_path_factory):
    """The project after a first night and a second, what that printed, and its registry's client.

    The gate's decision about attackers so small is chance, so the alias is set by hand.
    """
    from mlflow import MlflowClient

    finished = finished_project(tmp_path_factory)
    folder = finished.copy_to(tmp_path_factory.mktemp("nights") / "project")
    # The best of so short a training may be the attacker that it began with.
    set_params(folder, "training.keep=last")
    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    client.set_registered_model_alias("attacker", "champion", "1")
    # By the parameters of the deployment, as a schedule would.
    second = run_in(folder, "-c", NIGHT)
    client.set_registered_model_alias("attacker", "champion", "1")
    return folder, second.stdout, client


def test_the_second_night_begins_from_the_champion_of_the_first(nights):
    folder, said, client = nights
    first, second = (client.get_model_version("attacker", number) for number in ("1", "2"))
    run = client.get_run(second.run_id)
    own = folder / WORKSPACES / "flow"
    report = json.loads((own / "reports/training.json").read_text())
    manifest = json.loads((own / "models/base/manifest.json").read_text())

    assert "warm start   from attacker version 1" in said
    assert not [name for name in first.tags if name.startswith("astra.parent")]
    assert "1" == second.tags["astra.parent_version"] == run.data.tags["astra.parent_version"]
    assert first.run_id == run.data.tags["astra.parent_run_id"]
    begun = client.get_run(first.run_id).data.tags
    assert begun["astra.run_key"] == report["parent"]["run_key"]
    assert first.tags["astra.checkpoint_digest"] == manifest["attacker"]["parent"]["digest"]
    assert first.tags["astra.checkpoint_digest"] != second.tags["astra.checkpoint_digest"]
    (model,) = run.inputs.model_inputs
    assert f"/{model.model_id}/" in first.source
    assert "Trained on from attacker version 1" in second.description


def test_the_night_has_a_seed_of_its_own_and_says_what_was_decided(nights):
    folder, said, client = nights
    seed = client.get_run(client.get_model_version("attacker", "2").run_id).data.params[
        "training_seed"
    ]

    assert seed.startswith("20")
    assert 8 == len(seed)
    assert "state Completed: attacker version 2 is" in said
    assert "decided about 2" in said
    assert "training_seed: null" in (folder / "params.yaml").read_text()
    assert "source: version" not in (folder / "params.yaml").read_text()


def test_a_second_run_of_one_night_says_that_there_is_nothing_new(nights):
    folder, _, client = nights
    said = run_in(folder, "-c", NIGHT).stdout

    assert 7 == said.count("up to date\n")
    assert (
        "unchanged    nothing new to try: every stage is up to date with training seed 20" in said
    )
    assert "state Unchanged: nothing new to try" in said
    assert 2 == len(client.search_model_versions("name = 'attacker'"))


def test_a_version_that_is_not_there_ends_in_a_line_before_anything_runs(nights):
    folder, _, _ = nights
    done = run_in(folder, "-m", "flows.cli", "run", "--warm-start", "9", check=False)

    assert 2 == done.returncode
    assert 1 == len(done.stderr.splitlines())
    assert "error: warm start must name a version of 'attacker' or an alias, got '9'" in done.stderr
