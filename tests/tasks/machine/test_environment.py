import os

from each_row import each_row

from tasks.machine.environment import needs_hub, set_environment, stage_environment
from tasks.params.schema import Params

HUB_PROMPTS = {"source": "hub", "dataset": "owner/name", "revision": "a" * 40}
HUB_MODEL = {"source": "hub", "repository": "owner/name", "revision": "a" * 40}


@each_row(
    "record",
    [
        {"prompts": HUB_PROMPTS},
        {"models": {"attacker": HUB_MODEL}},
        {"models": {"target": HUB_MODEL}},
        {"models": {"reference": HUB_MODEL}},
    ],
)
def test_a_hub_source_anywhere_needs_the_hub(record):
    params = Params.read(record, where="")

    assert needs_hub(params)
    assert "HF_HUB_OFFLINE" not in stage_environment(params)


def test_without_a_hub_source_the_hub_is_out_of_reach():
    environment = stage_environment(Params())

    assert ("1", "1") == (environment["HF_HUB_OFFLINE"], environment["TRANSFORMERS_OFFLINE"])


def test_mlflows_telemetry_is_off_by_the_word_that_it_reads():
    assert "true" == stage_environment(Params())["DO_NOT_TRACK"]


def test_what_is_set_already_is_left_alone(monkeypatch):
    for name in stage_environment(Params()):
        monkeypatch.setenv(name, "mine")
    set_environment(Params())

    assert {"mine"} == {os.environ[name] for name in stage_environment(Params())}
