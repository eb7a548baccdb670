"""``astra gc`` in a finished project: what can go goes, and nothing that is needed."""

import json

import pytest
from project import run_in, set_params
from shared import finished_project

pytestmark = [pytest.mark.wide, pytest.mark.timeout(1800)]
ASTRA = ("-m", "flows.cli")


def astra(folder, *arguments):
    return run_in(folder, *ASTRA, *arguments).stdout


def test_after_a_clean_up_all_that_is_needed_is_there(tmp_path_factory):
    folder = finished_project(tmp_path_factory).copy_to(tmp_path_factory.mktemp("gc") / "a b")
    for seed in ("7", "0"):
        set_params(folder, f"data_seed={seed}")
        run_in(folder, "-m", "dvc", "repro", "-q", "prompts")
    listed = json.loads(astra(folder, "gc", "--days", "0", "--dry-run", "--json"))
    removed = json.loads(astra(folder, "gc", "--days", "0", "--yes", "--json"))
    again = json.loads(astra(folder, "gc", "--days", "0", "--json"))

    assert listed["cache"]["num_results"] >= 4  # what another seed made of the prompts
    assert (False, True) == (listed["removed"], removed["removed"])
    assert removed["freed"] >= listed["num_bytes"] > 0
    assert (0, 0) == (again["cache"]["num_results"], again["num_bytes"])
    for name in ("data", "models"):
        for path in sorted((folder / name).rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
    run_in(folder, "-m", "dvc", "checkout")
    assert "up to date" in run_in(folder, "-m", "dvc", "status").stdout
    assert 7 == astra(folder, "status").count("up to date")
    assert {"candidate": "1"} == json.loads(astra(folder, "status", "--json"))["aliases"]
    assert json.loads(astra(folder, "lineage", "1", "--json"))["checkpoint_digest"]
