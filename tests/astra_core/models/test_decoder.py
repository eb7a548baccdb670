"""The loop alone, over a reading whose logits are known."""

import pytest
import torch
from each_row import each_row

from astra_core.config import GenerationConfiguration
from astra_core.engine.cache.reading import Reading
from astra_core.models.decoder import Decoder
from astra_core.models.decoding import draw, processed_logits
from astra_core.seeding import derive_key, uniforms

VOCABULARY, END = 12, 0


class Table(Reading):
    """A language whose next token depends on the last one alone; notes what it is asked."""

    def __init__(self, contexts):
        self.table = 2.0 * torch.randn(
            VOCABULARY, VOCABULARY, generator=torch.Generator().manual_seed(1)
        )
        self.last = torch.tensor([context[-1] for context in contexts])
        self.logits = self.table[self.last]
        self.suffix_logprobs = [() for _ in contexts]
        self.sizes = []

    def select(self, rows, *, room=0):
        del room
        self.last = self.last[torch.tensor(rows)]
        self.logits = self.table[self.last]

    def drop(self, is_over):
        # Any order will do, as long as it is told.
        kept = [place for place, over in enumerate(is_over) if not over][::-1]
        self.select(kept)
        return kept

    def advance(self, tokens, alive):
        assert len(tokens) == len(alive) == len(self.last)
        self.sizes.append(len(tokens))
        self.last = tokens
        self.logits = self.table[tokens]
        return self.logits


CONTEXTS = [(4, 5), (6,), (7, 8, 9), (3,), (4, 5)] * 4
KEYS = [derive_key(1, row) for row in range(len(CONTEXTS))]


def decoded(generation, *, rows=None, end_ids=(END,)):
    chosen = range(len(CONTEXTS)) if rows is None else rows
    contexts = [CONTEXTS[row] for row in chosen]
    reading = Table(contexts)
    keys = [KEYS[row] for row in chosen]
    decoder = Decoder(reading, contexts, generation, keys=keys, rules=(end_ids, (), None))
    return reading, decoder.run()


def by_hand(row, generation, *, end_ids=(END,)):
    """One row, token by token."""
    table = Table([CONTEXTS[row]]).table
    said, seen = [], set(CONTEXTS[row])
    last = CONTEXTS[row][-1]
    for step, number in enumerate(uniforms([KEYS[row]], generation.max_new_tokens)[0]):
        words = torch.zeros(1, VOCABULARY, dtype=torch.bool)
        words[0, list(seen)] = True
        is_early = step < generation.min_new_tokens
        forbidden = torch.tensor(end_ids, dtype=torch.long) if is_early else None
        logits = processed_logits(
            table[last : last + 1], generation, seen=words, forbidden=forbidden
        )
        token = int(draw(logits, torch.tensor([number])))
        said.append((token, float(table[last].log_softmax(dim=0)[token])))
        seen.add(token)
        last = token
        if token in end_ids:
            break
    return said


SETTINGS = [
    GenerationConfiguration(max_new_tokens=20),
    GenerationConfiguration(max_new_tokens=1),
    GenerationConfiguration(max_new_tokens=9, min_new_tokens=5),
    GenerationConfiguration(max_new_tokens=9, repetition_penalty=2.0, top_k=4),
    GenerationConfiguration(max_new_tokens=9, top_p=0.8, temperature=0.7),
]


@each_row("generation", SETTINGS)
@each_row("end_ids", [(END,), (END, 3), ()])
def test_rows_together_are_what_each_is_by_hand(generation, end_ids):
    _, found = decoded(generation, end_ids=end_ids, rows=range(8))
    for row, (tokens, logprobs) in enumerate(found):
        expected = by_hand(row, generation, end_ids=end_ids)

        assert [token for token, _ in expected] == tokens
        assert [value for _, value in expected] == pytest.approx(logprobs, abs=1e-5)


def test_rows_that_have_ended_are_dropped_and_the_loop_ends_with_the_last():
    generation = GenerationConfiguration(max_new_tokens=200)
    reading, found = decoded(generation)
    longest = max(len(tokens) for tokens, _ in found)

    assert reading.sizes[0] <= len(CONTEXTS)
    assert reading.sizes[-1] < len(CONTEXTS) // 2
    assert reading.sizes == sorted(reading.sizes, reverse=True)
    assert longest - 1 == len(reading.sizes) < 199


def test_no_token_is_read_that_nothing_follows():
    reading, _ = decoded(GenerationConfiguration(max_new_tokens=1))

    assert [] == reading.sizes


def test_rows_alone_and_in_another_order_say_the_same():
    generation = SETTINGS[3]
    _, found = decoded(generation)
    _, turned = decoded(generation, rows=range(len(CONTEXTS) - 1, -1, -1))

    assert [tokens for tokens, _ in found] == [tokens for tokens, _ in turned[::-1]]
    assert found[7][0] == decoded(generation, rows=[7])[1][0][0]
