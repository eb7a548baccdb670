import copy

import pytest
import torch
from each_row import each_row
from tiny_architectures import tiny_model

from astra_core.config import GenerationConfiguration
from astra_core.engine.bars import bar, bars_of, lower_barred, unbar
from astra_core.engine.logprobs import (
    continuation_states,
    token_logits,
    token_logprobs,
    token_logprobs_and_collisions,
    token_logprobs_and_entropies,
)
from astra_core.models.language_model import LanguageModel
from astra_core.models.rows import pad_rows
from astra_core.seeding import derive_key
from astra_parts.testing import tiny_language_model

BARRED = (1, 18, 19)
CONTEXTS, SAID = [(4, 5, 0, 6), (6, 3)], [(3, 7, 0), (5,)]


def shares(model, rows):
    """Of the ids that are left, by the definition."""
    with unbar(model):
        output = model(
            input_ids=rows.input_ids,
            attention_mask=rows.attention_mask,
            position_ids=rows.position_ids,
        )
    before = output.logits[:, -rows.continuation_ids.shape[1] - 1 : -1][rows.continuation_mask]
    left = [index for index in range(before.shape[1]) if index not in BARRED]
    return before[:, left].log_softmax(dim=1), left


@each_row("name", ["llama tied", "cohere", "mamba"])
def test_what_is_barred_has_no_share_in_any_likelihood(name):
    model, plain = tiny_model(name), tiny_model(name)
    bar(model, BARRED)
    rows = pad_rows(CONTEXTS, SAID, pad_id=0)
    mask, labels = rows.continuation_mask, rows.continuation_ids[rows.continuation_mask].tolist()
    if name == "mamba":
        rows_each = [pad_rows([c], [s], pad_id=0) for c, s in zip(CONTEXTS, SAID, strict=True)]
        logs = torch.cat([shares(plain, own)[0] for own in rows_each])
        left = shares(plain, rows_each[0])[1]
    else:
        logs, left = shares(plain, rows)
    expected = torch.stack([own[left.index(i)] for own, i in zip(logs, labels, strict=True)])
    found = token_logprobs(model, rows)
    again, entropies = token_logprobs_and_entropies(model, rows)
    third, collisions = token_logprobs_and_collisions(model, rows)

    for own in (found, again, third):
        torch.testing.assert_close(expected, own[mask], rtol=0.0, atol=1e-4)
    torch.testing.assert_close(
        -(logs.exp() * logs).sum(dim=1), entropies[mask], atol=1e-4, rtol=0.0
    )
    torch.testing.assert_close((2 * logs).logsumexp(dim=1), collisions[mask], atol=1e-4, rtol=0.0)
    logits = token_logits(model, rows, states=continuation_states(model, rows))
    assert float(logits.detach()[:, list(BARRED)].exp().sum()) == 0.0
    weights = [
        torch.autograd.grad(values, list(own.parameters()), allow_unused=True)
        for values, own in ((expected.sum(), plain), (found.sum(), model))
    ]
    for first, second in zip(*weights, strict=True):
        torch.testing.assert_close(first, second, rtol=1e-4, atol=1e-4)


def test_bars_are_copied_with_the_model_and_can_be_lifted():
    model = tiny_model("llama tied")
    bar(model, ())
    assert bars_of(model) is None
    bar(model, BARRED)
    twin = copy.deepcopy(model)
    bar(model, ())

    ids = torch.tensor([CONTEXTS[0]])
    assert list(BARRED) == bars_of(twin).tolist()
    assert twin(ids).logits[..., 1].max().item() < -1e3 < model(ids).logits[..., 1].min().item()
    logits = torch.zeros(2, 20, requires_grad=True)
    assert lower_barred(logits, torch.tensor(BARRED)).sum().item() < 0.0 == logits.sum().item()


@each_row("head", [50.0, float("inf")])
def test_a_vocabulary_padded_beyond_the_tokenizer_is_not_said(head):
    made = tiny_language_model()
    model = tiny_model("llama untied", vocab_size=84)
    with torch.no_grad():
        model.get_output_embeddings().weight[20:] = head
    speaker = LanguageModel(model, made.tokenizer)
    keys = [[derive_key(0, n) for n in range(64)]]
    (found,) = speaker.continuations([(4, 5)], keys, GenerationConfiguration(max_new_tokens=6))
    ids = [own.token_ids for own in found.utterances]
    again = speaker.continuation_logprobs([(4, 5)] * 64, ids)

    assert {*range(20)} >= {token for own in ids for token in own}
    for own, values in zip(found.utterances, again, strict=True):
        assert values == pytest.approx(own.logprobs, abs=1e-4)


def test_padding_is_drawn_again_and_every_other_draw_stays():
    made, keys = tiny_language_model(), [[derive_key(0, n) for n in range(400)]]
    one = GenerationConfiguration(max_new_tokens=1, min_new_tokens=0)

    def said(pad):
        made.tokenizer.pad_token = pad
        made.end_ids = (0,)
        (found,) = made.continuations([(4, 5)], keys, one)
        return [own.token_ids[0] for own in found.utterances]

    plain, padded = said(None), said("kind")
    pad = made.tokenizer.convert_tokens_to_ids("kind")
    assert pad in plain
    assert pad not in padded
    assert [own for own in plain if own != pad] == [
        own for own, was in zip(padded, plain, strict=True) if was != pad
    ]
    assert len({own for own, was in zip(padded, plain, strict=True) if was == pad}) > 1
