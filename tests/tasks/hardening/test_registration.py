from pathlib import Path

import pytest
from hardening_world import make_hardening_world
from memory_store import emptied, enter_memory_project

from astra_core.config import LoraConfiguration
from astra_core.metrics.statistics import Interval
from astra_core.models.folders import attacker_digest
from astra_core.models.language_model import LanguageModel
from astra_core.models.lora import add_adapters, save_adapters
from astra_core.models.pretrained import weights_digest
from astra_parts.testing import tiny_language_model
from tasks.hardening.registration import register_target
from tasks.records.hardening import Hardening, HardeningRound
from tasks.tracking.registry.versions import checkpoint_folder
from tasks.tracking.store import connect

pytestmark = pytest.mark.real

SPAN = Interval(0.25, 0.2, 0.3)
NAME = "attacker-target"


@pytest.fixture
def place(memory_folder, monkeypatch):
    folder = enter_memory_project(emptied(memory_folder), monkeypatch)
    return make_hardening_world(folder, monkeypatch)


def hardened(place, number):
    model, base = tiny_language_model(seed=number, is_trained=True), place.target(0)
    add_adapters(model.model, LoraConfiguration(rank=2), seed=0)
    model.save(place.target(number))
    save_adapters(model.model, place.target(number), base=weights_digest(base))
    rounds = [
        HardeningRound(own, f"digest {own}", 5, 5, 3, SPAN, SPAN, SPAN) for own in range(number + 1)
    ]
    success = {own: dict.fromkeys(range(number + 1), SPAN) for own in range(number + 1)}
    return Hardening(place.key, "a" * 64, 2, 0.95, tuple(rounds), success)


def test_each_target_is_one_version_with_its_figures_and_weights(place):
    first, second = hardened(place, 1), hardened(place, 2)
    numbers = [register_target(own, place) for own in (first, first, second, first)]
    client = connect()
    version = client.get_model_version(NAME, "1")

    assert ["1", "1", "2", "1"] == numbers
    assert "0.2500" == version.tags["fresh_attack_success_rate"]
    assert "0.2000" == version.tags["over_refusal_rate_low"]
    assert "Targets hardened" in client.get_registered_model(NAME).description
    assert 0.3 == client.get_run(version.run_id).data.metrics["hardening/perplexity_ratio_high"]
    with checkpoint_folder(client, version) as folder:
        assert attacker_digest(place.target(1)) == attacker_digest(Path(folder))
        # Alone it is the merged model, beside its base the adapters on that.
        alone = LanguageModel.load(folder)
        apart = LanguageModel.load(folder, beside=[place.target(0)])
    assert [False, True] == [alone.is_apart, apart.is_apart]
