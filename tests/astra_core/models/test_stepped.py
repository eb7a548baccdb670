"""Rows that are drawn in steps of fixed shape are those of the plain way."""

from dataclasses import replace

import pytest
import torch
from each_row import each_row

from astra_core.config import GenerationConfiguration
from astra_core.seeding import derive_key
from astra_parts.testing import tiny_language_model

CONTEXTS = [tuple((7 * row + 3 * at) % 19 + 1 for at in range(3 + row % 5)) for row in range(7)]
KEYS = [[derive_key(0, row, number) for number in range(row % 4)] for row in range(7)]
SUFFIXES = [row % 3 for row in range(7)]
SAMPLING = [
    {},
    {"min_new_tokens": 4, "repetition_penalty": 1.3, "top_k": 5},
    {"min_p": 0.05, "temperature": 0.7, "top_p": 0.8},
]


def stepping(model):
    machine = replace(model.plan.machine, fixes_shapes=True)
    model.plan = replace(model.plan, machine=machine, steps=True)
    return model


def drawn(model, options, **settings):
    generation = GenerationConfiguration(max_new_tokens=9, **options)
    with model.remembering(1 << 20):
        return model.continuations(CONTEXTS, KEYS, generation, suffix_lengths=SUFFIXES, **settings)


def tokens_of(found):
    return [[own.token_ids for own in each.utterances] for each in found]


def numbers_of(found):
    own = [number for each in found for u in each.utterances for number in u.logprobs]
    return own + [number for each in found for number in each.suffix_logprobs]


# A budget of 40 has room for two rows at a time: the others wait for their places.
@each_row(
    ("options", "spare", "budget"),
    [(SAMPLING[0], 5, 40), (SAMPLING[1], None, 16384), (SAMPLING[2], 5, 16384)],
)
def test_rows_draw_what_they_draw_in_the_plain_way(options, spare, budget):
    plain, model = tiny_language_model(0), stepping(tiny_language_model(0))
    for one in (plain, model):
        one._spare_id = spare
    expected = drawn(plain, options)

    found = drawn(model, options, tokens_per_batch=budget)
    assert tokens_of(expected) == tokens_of(found)
    assert numbers_of(expected) == pytest.approx(numbers_of(found), abs=1e-5)


def test_what_is_drawn_is_not_read_again():
    model = stepping(tiny_language_model(0))
    generation = GenerationConfiguration(max_new_tokens=4, min_new_tokens=4)
    with model.remembering(1 << 20):
        found = model.continuations(CONTEXTS, KEYS, generation)
        ids = found[1].utterances[0].token_ids
        place = model._store.find([*CONTEXTS[1], *ids, 3], limit=99)

    # The last token of a row has not been read.
    assert len(CONTEXTS[1]) + len(ids) - 1 == place[2]


def test_in_half_precision_a_copy_talks_and_the_weights_stay():
    model = stepping(tiny_language_model(0, is_trained=True))
    exact = numbers_of(drawn(model, {}))
    with model.remembering(1 << 20, is_bf16=True):
        rough = model.continuation_logprobs([(1, 2, 3)], [(4, 5)])
        assert torch.bfloat16 == model._talker.dtype
    again = model.continuation_logprobs([(1, 2, 3)], [(4, 5)])

    assert exact == numbers_of(drawn(model, {}))
    assert rough != again
    assert rough[0] == pytest.approx(again[0], abs=0.1)
