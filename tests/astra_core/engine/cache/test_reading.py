"""Both ways of reading say the same, and the quick one reads nothing twice."""

import pytest
import torch
from tiny_architectures import tiny_model

from astra_core.engine.abilities import abilities_of
from astra_core.engine.cache.prefixes import PrefixStore
from astra_core.engine.cache.reading import CachedReading, PaddedReading

pytestmark = pytest.mark.routes

CONTEXTS = [(4, 5, 0, 6, 7, 8), (6,), (4, 5, 0, 9), (12, 2, 0, 5, 4, 4, 4, 4)]
SUFFIXES = [3, 0, 1, 7]


@pytest.fixture(scope="module", params=["gpt2", "llama grouped", "mistral", "gemma3", "cohere"])
def model(request):
    own = tiny_model(request.param)
    assert abilities_of(own).takes_masks
    return own


@pytest.fixture(autouse=True)
def _without_gradient():
    with torch.no_grad():
        yield


def both(model, *, store=None, room=8):
    plain = PaddedReading(model, CONTEXTS, SUFFIXES)
    return plain, known_reading(model, CONTEXTS, SUFFIXES, store, room=room)


def known_reading(model, contexts, suffixes, store, *, room):
    places = store and store.places(contexts, suffixes)
    return CachedReading(model, contexts, suffixes, store=store, places=places, room=room)


def assert_alike(first, second, *, alive=None):
    chosen = torch.tensor([True] * len(first) if alive is None else alive)
    own, other = first[chosen].log_softmax(dim=1), second[chosen].log_softmax(dim=1)
    torch.testing.assert_close(own, other, rtol=0.0, atol=1e-4)


def exact(model, ids):
    return model(torch.tensor([ids])).logits[0].log_softmax(dim=1)


def test_contexts_give_the_next_logits_and_their_own_last_log_probabilities(model):
    for reading in both(model):
        for row, (ids, count) in enumerate(zip(CONTEXTS, SUFFIXES, strict=True)):
            expected = exact(model, ids)
            own = reading.logits[row].log_softmax(dim=0)
            torch.testing.assert_close(expected[-1], own, rtol=0.0, atol=1e-4)
            values = [float(expected[at - 1, ids[at]]) for at in range(len(ids) - count, len(ids))]
            assert values == pytest.approx(reading.suffix_logprobs[row], abs=1e-4)


def test_rows_continue_fork_and_end_alike(model):
    plain, cached = both(model)
    rows, alive = [0, 0, 1, 2, 3, 3], [True] * 6
    for reading in (plain, cached):
        reading.select(rows, room=8)
    assert_alike(plain.logits, cached.logits)
    for step in range(3):
        tokens = torch.arange(6) + step
        # A row that has ended is passed on and never looked at.
        alive = [is_alive and not (step == 1 and row == 2) for row, is_alive in enumerate(alive)]
        assert_alike(plain.advance(tokens, alive), cached.advance(tokens, alive), alive=alive)
    orders = [reading.drop([False, False, True, True, True, False]) for reading in (plain, cached)]
    assert [0, 1, 5] == sorted(orders[0]) == sorted(orders[1])
    for step in range(3):
        said = torch.tensor([step, 3, 0, 0, 0, 4])
        found = []
        for reading, order in zip((plain, cached), orders, strict=True):
            logits = reading.advance(said[order], [True] * 3)
            found.append(logits[torch.tensor(order).argsort()])
        assert_alike(*found)


def lengths_read(model, read):
    found = []
    handle = model.register_forward_pre_hook(
        lambda _, __, named: found.append(tuple(named["input_ids"].shape)), with_kwargs=True
    )
    read()
    handle.remove()
    return found


def test_what_was_read_and_said_is_not_read_again(model):
    store = PrefixStore(10**7)
    first = known_reading(model, CONTEXTS, [0] * 4, store, room=8)
    first.advance(torch.tensor([1, 2, 3, 4]), [True] * 4)
    first.advance(torch.tensor([5, 6, 7, 8]), [True, True, False, True])
    first.close()
    said = [(1, 5), (2, 6), (3,), (4, 8)]
    longer = [(*ids, *own, 9) for ids, own in zip(CONTEXTS, said, strict=True)]
    again = []
    shapes = lengths_read(
        model, lambda: again.append(known_reading(model, longer, [0] * 4, store, room=8))
    )

    assert [(4, 1)] == shapes
    for row, ids in enumerate(longer):
        own = again[0].logits[row].log_softmax(dim=0)
        torch.testing.assert_close(exact(model, ids)[-1], own, rtol=0.0, atol=1e-4)


def test_rows_that_are_left_behind_are_remembered(model):
    store = PrefixStore(10**7)
    reading = known_reading(model, CONTEXTS, [0] * 4, store, room=8)
    reading.advance(torch.tensor([1, 2, 3, 4]), [True] * 4)
    order = reading.drop([True, False, False, True])
    reading.advance(torch.tensor([5, 6])[[row - 1 for row in order]], [True] * 2)
    reading.close()
    said = [(1,), (2, 5), (3, 6), (4,)]

    for ids, own in zip(CONTEXTS, said, strict=True):
        place = store.find((*ids, *own, 9), limit=99)
        assert place is not None
        assert len(ids) + len(own) == place[2]


def test_a_memory_is_used_up_to_the_last_log_probability_that_is_asked_for(model):
    store = PrefixStore(10**7)
    known_reading(model, CONTEXTS, SUFFIXES, store, room=8).close()
    found = []
    shapes = lengths_read(
        model, lambda: found.append(known_reading(model, CONTEXTS, SUFFIXES, store, room=8))
    )
    plain = PaddedReading(model, CONTEXTS, SUFFIXES)

    assert [(4, max(SUFFIXES) + 1)] == shapes
    assert_alike(plain.logits, found[0].logits)
    for expected, own in zip(plain.suffix_logprobs, found[0].suffix_logprobs, strict=True):
        assert expected == pytest.approx(own, abs=1e-4)


def test_a_memory_of_some_rows_serves_them_among_others(model):
    store = PrefixStore(10**7)
    known_reading(model, CONTEXTS[:1], [0], store, room=0).close()
    plain, cached = both(model, store=store)

    assert_alike(plain.logits, cached.logits)
    tokens = torch.tensor([1, 2, 3, 4])
    assert_alike(plain.advance(tokens, [True] * 4), cached.advance(tokens, [True] * 4))
    # What was handed over is not written to by those that go on from it.
    other = known_reading(model, CONTEXTS[:1], [0], store, room=4)
    torch.testing.assert_close(
        exact(model, CONTEXTS[0])[-1], other.logits[0].log_softmax(dim=0), rtol=0.0, atol=1e-4
    )
