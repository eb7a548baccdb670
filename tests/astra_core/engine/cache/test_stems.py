"""Rows that go on from one prefix say what rows with a copy of it each would say."""

import pytest
import torch
from each_row import each_row
from tiny_architectures import tiny_model

from astra_core.engine.abilities import abilities_of
from astra_core.engine.attention import attention
from astra_core.engine.cache.key_values import KeyValues
from astra_core.engine.cache.prefixes import PrefixStore
from astra_core.engine.cache.reading import CachedReading
from astra_core.engine.cache.stems import Groups

pytestmark = pytest.mark.routes

CPU = torch.device("cpu")
HEADS, SIZE = 4, 8
# Regular groups; rows out of order; a prefix with fewer rows; one without any.
OWNERS = [(0, 0, 1, 1), (1, 0, 1, 0), (0, 0, 0, 1), (2, 2, 0)]
CONTEXTS = [(4, 5, 0, 6, 7, 8), (6, 3), (4, 5, 0, 9)]


def numbers(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3))


@each_row("owners", OWNERS)
def test_what_is_put_together_comes_apart_again(owners):
    groups = Groups.of(owners, [5] * (max(owners) + 1), CPU)
    rows = numbers(len(owners), 2, 3, 7)
    together = groups.together(rows)

    assert (groups.num_prefixes, 2, groups.size * 3, 7) == tuple(together.shape)
    assert torch.equal(rows, groups.apart(together))
    for row, owner in enumerate(owners):
        place = owners[:row].count(owner)
        own = together[owner, :, 3 * place : 3 * place + 3]
        assert torch.equal(rows[row], own)


def test_only_what_lies_behind_a_prefix_is_hidden():
    groups = Groups.of([0, 1], [2, 3], CPU)

    assert [[True, True, False], [True, True, True]] == (
        (groups.mask(3, torch.float32) == 0.0)[:, 0, 0].tolist()
    )
    assert Groups.of([0, 1], [3, 3], CPU).mask(3, torch.float32) is None


def passes(owners, *, groups, lengths, counts):
    """A cache whose rows go on from a stem, one with copies, and the same pass on both."""
    prefixes = KeyValues(1, [0] * len(lengths), 8)
    prefixes.open(lengths, CPU)
    states = numbers(len(lengths), groups, max(lengths), SIZE)
    prefixes.layers[0].update(states, states + 1.0)
    prefixes.close()
    caches = (prefixes.fork(owners, capacity=9), prefixes.copy_rows(owners, capacity=20))
    states = numbers(len(owners), groups, max(counts), SIZE)
    found = []
    for cache in caches:
        told = cache.open(counts, CPU)
        keys, values = cache.layers[0].update(states, states - 1.0)
        seen = torch.arange(told.width) <= told.slots[:, :, None]
        mask = torch.zeros(seen.shape).masked_fill(~seen, -1e30)[:, None]
        found.append((keys, values, mask))
        cache.close()
    return found


@each_row("owners", OWNERS)
@each_row("groups", [1, 2, 4])
@each_row("count", [1, 3])
@each_row("scaling", [None, 0.7])
def test_attention_over_a_stem_is_that_over_copies(owners, groups, count, scaling):
    counts = [count] * (len(owners) - 1) + [1]
    forked, copied = passes(owners, groups=groups, lengths=[5, 2, 4], counts=counts)
    module = torch.nn.Module()
    module.num_key_value_groups = HEADS // groups
    query = numbers(len(owners), HEADS, max(counts), SIZE)
    found, expected = (
        attention(module, query, *own, scaling=scaling, is_causal=False)[0]
        for own in (forked, copied)
    )

    for row, own in enumerate(counts):
        torch.testing.assert_close(expected[row, :own], found[row, :own], rtol=1e-4, atol=1e-5)


@each_row("name", ["softcap", "position_bias", "s_aux", "dropout"])
def test_attention_of_a_special_kind_is_refused(name):
    ((keys, values, mask), _) = passes((0, 0), groups=4, lengths=[5], counts=[1, 1])

    with pytest.raises(NotImplementedError, match="attention over a stem must be plain"):
        attention(torch.nn.Module(), numbers(2, 4, 1, SIZE), keys, values, mask, **{name: 0.5})


@pytest.fixture(scope="module", params=["gpt2", "llama grouped"])
def model(request):
    own = tiny_model(request.param)
    assert abilities_of(own).takes_stems
    return own


def exact(model, ids):
    return model(torch.tensor([ids])).logits[0, -1].log_softmax(dim=0)


def assert_exact(model, reading, sequences):
    for own, ids in zip(reading.logits.log_softmax(dim=1), sequences, strict=True):
        torch.testing.assert_close(exact(model, ids), own, rtol=0.0, atol=1e-4)


@torch.no_grad()
@each_row("alive", [(5,), (1, 4), (0, 1, 2, 3, 4), (2, 3, 5)])
def test_replies_continue_from_their_context_however_many_have_ended(model, alive):
    reading = CachedReading(model, CONTEXTS, [0] * 3, room=0, takes_stems=True)
    rows = [0, 0, 1, 1, 2, 2]
    reading.select(rows, room=6)
    said = [[*CONTEXTS[row]] for row in rows]
    for step in range(2):
        tokens = [1 + step + row for row in range(6)]
        reading.advance(torch.tensor(tokens), [True] * 6)
        said = [[*ids, token] for ids, token in zip(said, tokens, strict=True)]
    assert_exact(model, reading, said)
    order = reading.drop([row not in alive for row in range(6)])
    said = [said[row] for row in order]
    for token in (7, 2):
        reading.advance(torch.tensor([token] * len(said)), [True] * len(said))
        said = [[*ids, token] for ids in said]

    assert_exact(model, reading, said)


@torch.no_grad()
def test_prefixes_that_nobody_continues_from_are_not_read_at_every_step(model):
    reading = CachedReading(model, CONTEXTS, [0] * 3, room=0, takes_stems=True)
    reading.select([0, 0, 1, 1, 2, 2], room=6)
    reading.advance(torch.arange(6), [True] * 6)
    stem = reading._values.stem
    assert 3 == stem.prefixes(0, 6).keys.shape[0]
    reading.drop([row != 2 for row in range(6)])

    assert (1, len(CONTEXTS[1])) == tuple(stem.prefixes(0, 1).keys.shape[::2])
    assert 3 == len(stem.values.lengths)
    # The copy of the one that is left is not held on to by what is remembered.
    reading.close()
    assert 3 == stem.prefixes(0, 1).keys.shape[0]


def read_on_stem(model, contexts, store):
    zeros = [0] * len(contexts)
    places = store.places(contexts, zeros)
    return CachedReading(
        model, contexts, zeros, store=store, places=places, room=4, takes_stems=True
    )


@torch.no_grad()
def test_siblings_are_read_on_the_prefix_they_share(model):
    store = PrefixStore(10**7)
    first = read_on_stem(model, CONTEXTS, store)
    first.select([0, 0, 1, 1, 2, 2], room=4)
    first.advance(torch.arange(6), [True] * 6)
    first.close()
    turns = [[*CONTEXTS[row // 2], row] for row in range(6)]
    siblings = [[*ids, *tail] for ids in turns for tail in ((3,), (5, 9, 2))]
    second = read_on_stem(model, siblings, store)
    assert_exact(model, second, siblings)
    assert 6 == len(second._values.stem.values.lengths)
    assert 4 == second._values.capacity - 4
    second.select([0, 0, 5, 11, 11, 11], room=4)
    second.advance(torch.tensor([1, 2, 3, 4, 5, 6]), [True] * 6)

    rows = (0, 0, 5, 11, 11, 11)
    assert_exact(model, second, [[*siblings[row], at + 1] for at, row in enumerate(rows)])


@torch.no_grad()
def test_rows_without_siblings_have_their_prefix_to_themselves(model):
    reading = CachedReading(model, CONTEXTS, [0] * 3, room=0, takes_stems=True)
    reading.select([0, 1, 1, 2], room=6)

    assert reading._values.stem is None


@torch.no_grad()
def test_a_row_of_which_nothing_was_known_continues_alone(model):
    store = PrefixStore(10**7)
    read_on_stem(model, [CONTEXTS[0]], store).close()
    rows = [[*CONTEXTS[0], 1], [*CONTEXTS[0], 2], [*CONTEXTS[0], 3], [6, 3, 1]]
    reading = read_on_stem(model, rows, store)
    assert_exact(model, reading, rows)
    reading.drop([True, True, True, False])
    reading.advance(torch.tensor([7]), [True])

    assert_exact(model, reading, [[*rows[3], 7]])
