"""Rollouts to promotion against real servers: killed, counted."""

import itertools
import json
import os
import signal
import subprocess
import sys
from collections import Counter

import pytest
from hostile_server import hostile_server
from project import environment, run_in, set_params
from real_servers import Till, forwarded, llama_server, transformers_serve
from shared import finished_project

pytestmark = [pytest.mark.real, pytest.mark.timeout(2400)]

WEIGHTS = "models/attacker/model.safetensors"


def project(factory, folder, url, model, **options):
    """A small project with its models, whose target is behind an address."""
    given = {"base_url": url, "model": model, "name": "served", "concurrency": 4, **options}
    made = finished_project(factory).copy_after(folder, "prompts", "validation", "models")
    target = json.dumps({"name": "endpoint", "options": given})
    set_params(
        made,
        f"system.target={target}",
        "reward.options.nll_weight=0.0",
        "training.training_steps=3",
        "rollouts.sampler.options.num_responses=1",
        "evaluation.num_rollouts=1",
        "promotion.min_prompts=2",
    )
    return made


def report(folder, name):
    return json.loads((folder / f"reports/{name}.json").read_text())


@pytest.mark.wide
def test_llama_cpp_is_attacked_whatever_is_killed(tmp_path, tmp_path_factory):
    with llama_server(tmp_path) as url, hostile_server(forwarded(url)) as counter:
        own = {"model": "m", "extra": {"cache_prompt": False}}
        whole = project(tmp_path_factory, tmp_path / "whole", counter.url, **own)
        shown = run_in(whole, "-m", "flows.cli", "run").stdout
        asked, requests = set(counter.keys), len(counter.requests)
        assert requests == len(asked)
        counter.keys.clear()
        counter.requests.clear()
        till = Till(url)
        killed = project(tmp_path_factory, tmp_path / "killed", counter.url, **own)
        _killed_three_times(killed, counter, at=(10, requests // 2, requests - 20), till=till)

        assert asked == set(counter.keys)
        again = sum(counter.keys.values()) - len(asked)
    # What was under way at a kill is asked again, under the same key: it is paid once.
    assert again <= 3 * 4
    assert Counter(asked) == till.paid
    assert (whole / WEIGHTS).read_bytes() == (killed / WEIGHTS).read_bytes()
    assert "promotion" in shown
    examined = report(whole, "evaluation")
    assert examined["target"]["name"] == "m at served"
    assert examined["attacker"] == {
        **report(killed, "evaluation")["attacker"],
        **{name: value for name, value in examined["attacker"].items() if "latency" in name},
    }
    assert examined["attacker"]["failed_rate"] == 0.0


def _killed_three_times(folder, counter, *, at, till):
    """Runs the stages, each try but the last killed at a request, all of its processes at once."""
    moments = iter(at)
    state = {"next": next(moments), "process": None}

    def behave(handler, body, number):
        if number == state["next"]:
            state["next"] = next(moments, 0)
            os.killpg(state["process"].pid, signal.SIGKILL)
        till.behave(handler, body, number)

    counter.behave = behave
    for count in itertools.count():
        state["process"] = subprocess.Popen(
            [sys.executable, "-m", "dvc", "repro", "-q"],
            cwd=folder,
            env=environment(folder),
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        status = state["process"].wait(timeout=900)
        # A stage leads a group of its own, and ends when it has nobody left.
        if status == 0:
            assert count == len(at)
            return
        assert count < len(at)


@pytest.mark.wide
def test_transformers_serve_is_attacked_to_the_promotion(tmp_path, tmp_path_factory):
    with transformers_serve(tmp_path) as (url, model):
        made = project(tmp_path_factory, tmp_path / "project", url, model)
        shown = run_in(made, "-m", "flows.cli", "run").stdout

    assert "promotion" in shown
    examined = report(made, "evaluation")
    assert examined["attacker"]["target_calls"] > 0
    assert examined["attacker"]["failed_rate"] == 0.0
