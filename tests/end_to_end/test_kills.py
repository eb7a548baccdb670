"""SIGKILL at random moments, then the same command: every output is that of a quiet run.

Each kind of process is struck at once; in the wide tier every second stage of a whole run is. With
``ASTRA_KILLS`` each stage is, so many times; ``ASTRA_KILL_SEED`` says when, and which are second.
"""

import os
import random
import shutil
import socket
import sys

import pytest
from killer import Killer, end, leftovers, outputs, start
from project import run_in
from shared import PREPARED, finished_project

from tasks.pipeline.names import STAGE_NAMES

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]

NUM_KILLS = int(os.environ.get("ASTRA_KILLS", "0"))
SEED = int(os.environ.get("ASTRA_KILL_SEED", "0"))
STRUCK = [stage for stage in STAGE_NAMES for _ in range(NUM_KILLS)] or STAGE_NAMES[SEED % 2 :: 2]
VICTIMS = ("stage", "dvc", "flow")
EACH_KIND = {"training": ["dvc", "server"], "evaluation": ["stage"], "registration": ["flow"]}
LOST = "the Prefect server of this run must keep running"


@pytest.fixture(scope="module")
def quiet(tmp_path_factory):
    """A project in which nobody struck at ``astra run``, and what each stage took."""
    return finished_project(tmp_path_factory)


@pytest.fixture
def project(quiet, tmp_path):
    """The same project before its first run."""
    folder = shutil.copytree(quiet.fresh, tmp_path / "project", symlinks=True)
    yield folder
    end(folder)


@pytest.fixture
def prepared(quiet, tmp_path):
    """The same project with its models, before the first rollouts."""
    folder = quiet.copy_after(tmp_path / "project", "prompts", "validation", "models")
    yield folder
    end(folder)


@pytest.fixture
def rolled_out(quiet, tmp_path):
    """The same project before its training."""
    folder = quiet.copy_after(tmp_path / "project", *PREPARED)
    yield folder
    end(folder)


def _plan() -> dict[str, list[str]]:
    """Each victim as often as the next one, in stages that the seed chooses."""
    victims = [VICTIMS[place % len(VICTIMS)] for place in range(len(STRUCK))]
    order = random.Random(SEED)
    order.shuffle(victims)
    plan: dict[str, list[str]] = {}
    for stage, victim in zip(STRUCK, victims, strict=True):
        plan.setdefault(stage, []).append(victim)
    # The temporary server is struck at where its run has the longest to go without one.
    plan.setdefault("training", []).append("server")
    return plan


def test_each_kind_of_process_is_killed_once_and_the_run_ends_like_a_quiet_one(quiet, rolled_out):
    struck = _struck(quiet, rolled_out, EACH_KIND)

    # A stage that was quicker than the blow is over; one may get away.
    assert len(struck) >= 3
    assert ("server" in struck) is (LOST in (rolled_out / "runs.log").read_text())
    _assert_ended_like(quiet, rolled_out)


@pytest.mark.wide
def test_a_run_that_is_killed_again_and_again_ends_like_a_quiet_one(quiet, project):
    struck = _struck(quiet, project, _plan())

    assert len(struck) >= len(STRUCK)
    assert 3 <= len(set(struck))
    _assert_ended_like(quiet, project)


def _struck(quiet, folder, plan):
    """Runs until a run ends well: the kinds of those that were killed, in order."""
    killer = Killer(folder, plan, quiet.seconds, seed=SEED)
    most = 4 + sum(map(len, plan.values()))
    statuses = []
    while not statuses or statuses[-1] != 0:
        assert len(statuses) < most, (folder / "runs.log").read_text()
        flow = start(folder)
        killer.watch(flow)
        statuses.append(flow.wait())
    sys.stdout.write(f"seed {SEED}: {killer.strikes}; exits {statuses}\n")
    return [strike.partition(" ")[0] for strike in killer.strikes]


@pytest.mark.wide
def test_a_run_whose_pages_lose_their_server_continues_by_the_same_command(quiet, prepared):
    ports = ("--prefect-port", _free_port(), "--mlflow-port", _free_port())
    run_in(prepared, "-m", "flows.cli", "ui", "--detach", *ports)
    killer = Killer(prepared, {"rollouts": ["server"]}, quiet.seconds, seed=SEED)
    flow = start(prepared)
    killer.watch(flow)
    run_in(prepared, "-m", "flows.cli", "ui", "--stop")

    assert 0 != flow.wait(), killer.strikes
    assert 0 == start(prepared).wait(), (prepared / "runs.log").read_text()
    _assert_ended_like(quiet, prepared)


@pytest.mark.wide
def test_two_runs_at_once_make_what_one_makes(quiet, prepared):
    # MLflow's tables, as Prefect's are there: to make them twice at once is another matter.
    connect = "from tasks.tracking.store import connect; connect().search_experiments()"
    run_in(prepared, "-c", connect)
    flows = [start(prepared) for _ in range(2)]
    statuses = [flow.wait(600) for flow in flows]

    assert [0, 0] == statuses, (prepared / "runs.log").read_text()
    _assert_ended_like(quiet, prepared)


def _assert_ended_like(quiet, other):
    assert _differences(quiet.folder, other) == []
    assert _registered(quiet.folder) == _registered(other)
    assert [] == leftovers(other)


def _free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return str(found.getsockname()[1])


def _differences(calm, other):
    left, right = outputs(calm), outputs(other)
    return sorted(name for name in left | right if left.get(name) != right.get(name))


def _registered(folder):
    """Versions, aliases, runs and how often each figure was recorded, as the registry has them."""
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    versions = client.search_model_versions("name = 'attacker'")
    experiment = client.get_experiment_by_name("red-team-training")
    runs = client.search_runs([experiment.experiment_id])
    figures = [
        (name, metric.step)
        for run in runs
        for name in run.data.metrics
        for metric in client.get_metric_history(run.info.run_id, name)
    ]
    return {
        "versions": [
            (v.version, sorted(v.aliases), v.tags["astra.registration_key"]) for v in versions
        ],
        "runs": [run.info.status for run in runs],
        "twice": len(figures) - len(set(figures)),
    }
