import pytest
from each_row import each_row

from astra_core.config import GenerationConfiguration
from astra_core.engine.abilities import token_bytes_of
from astra_core.engine.cache.reading import CachedReading
from astra_core.seeding import derive_key
from astra_parts.testing import tiny_language_model

SHORT = GenerationConfiguration(max_new_tokens=8)


def keys_for(count, *, replies=1):
    return [[derive_key(1, row, reply) for reply in range(replies)] for row in range(count)]


@pytest.fixture(scope="module", params=["llama", pytest.param("gpt2", marks=pytest.mark.real)])
def model(request):
    return tiny_language_model(2, kind=request.param)


def test_what_many_contexts_begin_with_is_read_once_and_changes_no_token(model):
    told, own = (4, 5, 6, 7) * 10, [(a, b) for a in range(3, 8) for b in range(4)]
    contexts, keys = [told + end for end in own], keys_for(len(own))
    plain = model.continuations(contexts, keys, SHORT)
    read = []
    hook = model.model.register_forward_pre_hook(
        lambda _, __, given: read.append(tuple(given["input_ids"].shape)), with_kwargs=True
    )
    with model.remembering(1 << 22):
        found = model.continuations(contexts, keys, SHORT)
        first, read[:] = read[:2], []
        model.continuations([(9, *told), *contexts], [[]] * 21, SHORT)
    hook.remove()

    assert [(1, len(told)), (len(own), 2)] == first
    # The one that begins otherwise alone is read from its start.
    assert [(21, 1 + len(told))] == read
    assert [c.utterances[0].token_ids for c in plain] == [c.utterances[0].token_ids for c in found]


# Alone, or behind what all begin with: too little to be stored apart, or so much that they fit only
# behind it.
@each_row("num_common, has_short", [(0, False), (10, False), (20, False), (16, True)])
def test_each_beginning_is_read_once_where_not_all_can_be_kept(model, num_common, has_short):
    """Else what siblings share is read for all, kept of none, and read again for each."""
    common = (9,) * num_common
    begun = [(*common, *(one, other) * 30) for one in range(3, 9) for other in range(3, 9)]
    contexts = [(*own, last) for last in (3, 4) for own in begun]
    # What all begin with is then one of the beginnings.
    contexts += [(*common, last, last) for last in range(3)] * has_short
    keys = keys_for(len(contexts))
    plain = model.continuations(contexts, keys, SHORT)
    read = []
    hook = model.model.register_forward_pre_hook(
        lambda _, __, given: read.append(given["input_ids"].numel()), with_kwargs=True
    )
    with model.remembering((num_common + 12 * 61) * token_bytes_of(model.model)):
        found = model.continuations(contexts, keys, SHORT)
    hook.remove()

    decoded = len(contexts) * SHORT.max_new_tokens
    once = 60 * len(begun) + len(contexts)
    # What would save little is not read apart.
    little = 512
    assert once <= sum(read) <= once + decoded + num_common * len(begun) + little
    assert [c.utterances[0].token_ids for c in plain] == [c.utterances[0].token_ids for c in found]


def test_a_common_beginning_is_read_once_where_all_fit_only_behind_it(model):
    common = (9,) * 60
    read = []
    hook = model.model.register_forward_pre_hook(
        lambda _, __, given: read.append(tuple(given["input_ids"].shape)), with_kwargs=True
    )

    def passes(contexts, num_kept):
        read.clear()
        with model.remembering(num_kept * token_bytes_of(model.model)):
            for own in contexts:
                model.continuations(own, keys_for(len(own)), SHORT)
        return [own for own in read if own[1] > 1]

    ends = [(last, 7) for last in (0, 1, 2, 5, 6, 7, 8)]
    # It is a beginning itself, and has left the store when others have been read behind it.
    begun = [(*common, *(one, 4) * 20) for one in (3, 4)]
    contexts = [(*own, *end) for end in ends for own in (*begun, common)]
    assert [(1, 60), (2, 40), (21, 2)] == passes([contexts], 190)
    # It is stored already, and alone.
    first = [(*common, *(one, 5) * 30) for one in range(3, 15)]
    then = [(*common, *(one, 4) * 25, *end) for end in ends for one in (3, 4)]
    assert [(1, 60), (12, 60), (2, 50), (14, 2)] == passes([first, then], 200)
    hook.remove()


def test_what_one_batch_adds_displaces_nothing_that_the_next_continues_from(model):
    told = (4, 5, 6, 7) * 10
    keys = keys_for(20)
    read = []
    hook = model.model.register_forward_pre_hook(
        lambda _, __, given: read.append(given["input_ids"].shape[1]), with_kwargs=True
    )
    with model.remembering(1 << 22):
        model.continuations([told], [[]], SHORT)
        store, read[:] = model._store, []
        store.max_bytes = 4 * store._num_bytes
        contexts = [(*told, row % 5 + 3, row // 5) for row in range(20)]
        model.continuations(contexts, keys, SHORT, tokens_per_batch=160)
    hook.remove()

    assert None is store.find(told, limit=len(told))
    assert 2 == max(read)


@each_row("instruction, turns", [(40, 1), (40, 2), (2, 2), (0, 3)])
def test_the_positions_that_a_batch_holds_stay_within_the_budget(
    model, instruction, turns, monkeypatch
):
    budget, sizes = 240, []
    close = CachedReading.close

    def note_size(reading):
        values = reading.values
        stem = 0 if values.stem is None else len(values.stem.values.lengths)
        held = stem and stem * (values.stem.values.capacity - 1)
        sizes.append(held + len(reading._ids + reading._retired) * (values.capacity - 1))
        close(reading)

    monkeypatch.setattr(CachedReading, "close", note_size)
    contexts = [(*((4, 5, 6, 7) * 10)[:instruction], row, 8) for row in range(3, 8)]
    with model.remembering(1 << 24):
        for turn in range(turns):
            keys = [
                [derive_key(turn, at, reply) for reply in range(2)] for at in range(len(contexts))
            ]
            found = model.continuations(contexts, keys, SHORT, tokens_per_batch=budget)
            contexts = [
                (*context, *said.token_ids, 9)
                for context, own in zip(contexts, found, strict=True)
                for said in own.utterances
            ][:12]

    assert max(sizes) <= budget


@each_row("seed", range(5))
def test_siblings_may_end_before_their_first_pass(model, seed):
    generation = GenerationConfiguration(max_new_tokens=4, min_new_tokens=0)
    keys = [[derive_key(seed, reply) for reply in range(40)]]
    (together,) = model.continuations([(4, 5, 0)], keys, generation)
    alone = [model.continuations([(4, 5, 0)], [[key]], generation)[0] for key in keys[0]]

    assert any(1 == len(own.token_ids) for own in together.utterances)
    assert [own.utterances[0].token_ids for own in alone] == [
        own.token_ids for own in together.utterances
    ]


def test_a_context_without_keys_is_only_read(model):
    found = model.continuations([(4, 5, 0), (6,)], [[], []], SHORT, suffix_lengths=[2, 0])

    assert [(), ()] == [own.utterances for own in found]
    assert [2, 0] == [len(own.suffix_logprobs) for own in found]
