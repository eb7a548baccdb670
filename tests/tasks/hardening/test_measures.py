import math

import pytest
from hardening_world import make_hardening_world

from astra_core.files import read_json, write_json
from astra_parts.testing import tiny_language_model
from tasks.hardening.measures import _nats, gather, measure
from tasks.hardening.pairs import AnsweredRequest


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A target that has not changed, and one that has."""
    with pytest.MonkeyPatch.context() as patch:
        place = make_hardening_world(tmp_path_factory.mktemp("world"), patch)
        tiny_language_model(seed=3).save(place.target(1))
        tiny_language_model(seed=11).save(place.attacker(1))
        first = measure(0, place)
        yield first, measure(1, place), {p.name: p.read_bytes() for p in _files(place)}, place


def _files(place):
    return place.folder.glob("*.json")


def test_every_attacker_meets_every_target(measured):
    first, found, _, _ = measured

    assert {0: {0}} == {target: set(cells) for target, cells in first.success.items()}
    assert {0: {0, 1}, 1: {0, 1}} == {t: set(cells) for t, cells in found.success.items()}
    # These are the same models.
    assert found.success[0][0] == found.success[1][1]
    assert (2, "2 rounds") == (found.num_prompts, f"{len(found.rounds)} rounds")


def test_a_target_that_did_not_change_has_the_same_perplexity(measured):
    before, after = measured[1].rounds

    assert before.perplexity == after.perplexity
    assert (1.0, 1.0, 1.0) == tuple(after.perplexity_ratio.record().values())
    assert 1.0 < before.perplexity.low <= before.perplexity.value <= before.perplexity.high
    assert 3 == before.num_requests


def test_perplexity_is_the_exponential_of_the_mean_over_requests(measured):
    nats = read_json(measured[3].file("nats_0.json"))["nats"]

    assert math.exp(sum(nats) / 3) == pytest.approx(measured[1].rounds[0].perplexity.value)


def test_what_the_first_target_refused_has_no_perplexity(measured):
    held = [AnsweredRequest("may we?", None, reply, is_held=True) for reply in ("so", None)]

    assert 1 == len(_nats(measured[3].system(0), held))


def test_what_was_measured_is_not_measured_again(measured):
    *_, found, written, place = measured
    write_json({"rate": found.success[0][0].record(), "num_prompts": 7}, place.file("x.json"))
    place.file("x.json").replace(place.file("success_0_0.json"))

    assert 7 == measure(1, place).num_prompts == gather(1, place).num_prompts
    names = written.keys() - {"success_0_0.json"}
    assert all(place.file(name).read_bytes() == written[name] for name in names)
