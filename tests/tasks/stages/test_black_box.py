"""Rollouts, training and evaluation against a target that is not here."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from hostile_server import hostile_server, well
from small_world import PARAMS, write_world

from astra_core.config import Choice
from astra_core.errors import BudgetError, RolloutError
from astra_core.files import read_json, write_json
from tasks.pipeline.stage import stage_of
from tasks.stages import evaluation, rollouts, training

REWARD = Choice(name="adversarial", options={"nll_weight": 0.0})


def world(folder):
    """As the stages before leave it: no model plays the target."""
    write_world(folder)
    manifest = folder / "models" / "base" / "manifest.json"
    entries = read_json(manifest)
    del entries["target"]
    write_json(entries, manifest)


def params_for(url, **options):
    given = {"base_url": url, "model": "tiny", "name": "t", "backoff_s": 0.01, **options}
    target = Choice(name="endpoint", options=given)
    system = PARAMS.system.model_copy(update={"target": target})
    return PARAMS.model_copy(update={"system": system, "reward": REWARD})


def run(params, *functions):
    done = []
    for module, function in functions or STAGES:
        done.append(stage_of(getattr(module, function)).run(params))
    return done


STAGES = (
    (rollouts, "collect_rollouts"),
    (training, "train_attacker"),
    (evaluation, "evaluate_attacker"),
)


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    world(tmp_path)
    return tmp_path


def report(name):
    return json.loads(Path(f"reports/{name}.json").read_text())


@pytest.mark.real
def test_an_endpoint_is_rolled_out_trained_against_and_examined(project, monkeypatch):
    monkeypatch.setenv("OWN_KEY", "sk-canary-of-this-test")
    with hostile_server() as server:
        prices = {"input": 1.0, "output": 1.0}
        params = params_for(server.url, prices=prices, key_env="OWN_KEY")
        run(params)
        sent = {headers["Authorization"] for _, headers in server.requests}
        assert {"Bearer sk-canary-of-this-test"} == sent
        files = [path for path in project.rglob("*") if path.is_file()]
        assert [] == [path for path in files if b"sk-canary" in path.read_bytes()]
        paid = len(server.requests)
        assert {1} == set(server.keys.values())
        # What was answered is answered again without a call, with the same figures.
        before = report("training"), report("evaluation")
        run(params)
        assert paid == len(server.requests)

    assert before == (report("training"), report("evaluation"))
    used = report("rollouts")["target"], report("training")["target"], report("evaluation")
    assert used[0]["calls"] == 8 * (3 + 9) * 2
    assert used[1]["calls"] > 0
    assert used[1]["tokens_in"] == 7 * used[1]["calls"]
    examined = used[2]["attacker"]
    assert examined["target_cost"] == pytest.approx(12e-6 * examined["target_calls"])
    assert used[2]["target"]["name"] == "tiny at t"
    rate = examined["attack_success_rate"]["value"]
    count = examined["target_cost"] / (rate * 6 * 2)
    assert examined["target_cost_per_success"] == pytest.approx(count)
    # Evaluations of the trained and the untrained attacker, on dev and test, and the rollouts.
    assert paid <= sum(each["calls"] for each in used[:2]) + 3 * examined["target_calls"]


@pytest.mark.real
def test_a_spent_budget_ends_training_with_what_was_learned(project):
    with hostile_server() as server:
        limit = {"calls": 400, "evaluation_share": 0.3}
        first = run(params_for(server.url, budget=limit), STAGES[0], STAGES[1])

        assert len(server.requests) <= 400
        assert "must stay within its budget 'default'" in first[1].stopped_because
        assert 0 < first[1].training_steps < PARAMS.training.training_steps
        assert Path("models/attacker/model.safetensors").is_file()
        stopped = Path("models/attacker/model.safetensors").read_bytes()
        # The share that is left examines what was learned.
        run(params_for(server.url, budget=limit), STAGES[2])
        assert len(server.requests) <= 400
        # A larger one goes on from what was paid for.
        keys = set(server.keys)
        more = run(params_for(server.url, budget={"calls": 5000}), STAGES[0], STAGES[1])
        assert more[1].training_steps == PARAMS.training.training_steps
        assert keys <= set(server.keys)
        assert {1} == set(server.keys.values())
    assert stopped


def test_rollouts_or_an_examination_beyond_the_budget_are_one_line(project):
    with hostile_server() as server:
        with pytest.raises(
            BudgetError, match=r"15 calls made and 48 more .*; evaluation_share keeps"
        ):
            run(params_for(server.url, budget={"calls": 20}), STAGES[0])

        assert [] == server.requests


@pytest.mark.real
def test_a_server_that_is_down_stops_the_run_in_one_line(project):
    with hostile_server() as server:
        url = server.url
    with pytest.raises(RolloutError, match="cannot be reached or broke off") as raised:
        run(params_for(url, retries=0), STAGES[0])

    assert "\n" not in str(raised.value)


@pytest.mark.real
def test_what_fails_now_and_then_is_counted_on_nodes_and_teaches_nothing(project):
    def shaky(handler, body, number):
        handler.give(b"{}", 500) if number % 50 == 7 else well(handler, body, number)

    with hostile_server(shaky) as server:
        run(params_for(server.url, retries=0, concurrency=2), STAGES[0])

    import pandas as pd

    frame = pd.read_parquet("data/rollouts/rollouts.parquet")
    failed = frame[frame["failure"] != ""]
    assert 0 < len(failed) < 0.2 * len(frame)
    assert set(failed["reward"]) == {0.0}


KILLED = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[2:]
from test_black_box import STAGES, params_for, run
run(params_for(sys.argv[1]), *STAGES[:2])
"""


def _process(url, *, here):
    folders = [str(here), str(here.parent), str(here.parents[1] / "astra_core")]
    return subprocess.Popen(
        [sys.executable, "-c", KILLED, url, *folders],
        start_new_session=True,
        stderr=subprocess.PIPE,
    )


@pytest.mark.wide
def test_a_run_killed_three_times_asks_again_only_what_was_under_way_and_ends_with_the_same_weights(
    project, tmp_path_factory, monkeypatch
):
    here = Path(__file__).parent
    with hostile_server() as server:
        process = _process(server.url, here=here)
        assert process.wait() == 0, process.stderr.read().decode()[-2000:]
        whole, weights = set(server.keys), Path("models/attacker/model.safetensors").read_bytes()
        told = report("training")["target"]

    other = tmp_path_factory.mktemp("killed")
    monkeypatch.chdir(other)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{other}/mlflow.db")
    world(other)
    kill_at = iter([60, 190, 350])
    state = {"next": next(kill_at), "process": None}

    def killing(handler, body, number):
        # Before the answer: a call that nobody has paid for.
        if number == state["next"]:
            state["next"] = next(kill_at, 0)
            os.killpg(state["process"].pid, signal.SIGKILL)
        well(handler, body, number)

    with hostile_server(killing) as server:
        for count in range(4):
            state["process"] = _process(server.url, here=here)
            assert (0 if count == 3 else -9) == state["process"].wait()
            state["process"].stderr.close()
        # At each kill, at most as many as `concurrency`, which is 8, were under way.
        assert whole == set(server.keys)
        assert sum(server.keys.values()) <= len(whole) + 3 * 8
    assert weights == Path("models/attacker/model.safetensors").read_bytes()
    counted = {name: value for name, value in told.items() if "latency" not in name}
    found = report("training")["target"]
    assert counted == {name: found[name] for name in counted}


def against_several(url, **machine):
    params = params_for(url)
    rules = {"rules": [{"when": ".", "say": ["how bad", "fine"]}]}
    targets = [
        {"name": "scripted", "label": "rules", "options": rules, "weight": 3},
        {"name": "endpoint", "options": params.system.target.options},
    ]
    record = params.model_dump(mode="json")
    record["system"]["target"] = targets
    record["machine"] |= machine
    return type(params).read(record, where="")


@pytest.mark.real
def test_several_weighted_targets_are_trained_against_and_told_apart(tmp_path, monkeypatch):
    weights, found = [], None
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    with hostile_server() as server:
        for place, machine in (("one", {}), ("two", {"num_processes": 2})):
            (tmp_path / place).mkdir()
            monkeypatch.chdir(tmp_path / place)
            world(tmp_path / place)
            params = against_several(server.url, prompts_per_shard=2, **machine)
            run(params, *(STAGES if place == "one" else STAGES[:2]))
            weights.append(Path("models/attacker/model.safetensors").read_bytes())
            table = pd.read_parquet("data/rollouts/rollouts.parquet")
            found = found or report("evaluation")

    # How many processes share the work changes nothing.
    assert weights[0] == weights[1]
    led = {json.loads(own)["system_target"] for own in table["prompt_metadata"]}
    assert {"rules", "endpoint"} == led
    rows = pd.read_parquet(tmp_path / "one/reports/evaluation_prompts.parquet")
    assert 6 == (rows["role"] == "attacker").sum()
    mean = 0.75 * rows["success_rate_rules"] + 0.25 * rows["success_rate_endpoint"]
    assert rows["success_rate"].to_list() == pytest.approx(mean.to_list())
    for role, side in (("attacker", "attacker"), ("baseline", "baseline")):
        own = rows[rows["role"] == role]
        for name in ("rules", "endpoint"):
            rate = own[f"success_rate_{name}"].mean()
            assert rate == pytest.approx(found["targets"][name][side]["value"])
            assert rate == pytest.approx(found[role][f"attack_success_rate_{name}"]["value"])
        headline = found[role]["attack_success_rate"]
        assert own["success_rate"].mean() == pytest.approx(headline["value"])
        assert headline["low"] <= headline["value"] <= headline["high"]
    assert {"lift"} < {*found["targets"]["rules"]}
    assert found["attacker"]["target_calls"] > 0
    kept = pd.concat(pd.read_parquet(own) for own in (tmp_path / "one/findings").glob("*.parquet"))
    assert {"rules"} <= {json.loads(own)["system_target"] for own in kept["metadata"]}
