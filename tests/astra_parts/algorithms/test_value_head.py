import pytest
import torch

from astra_core.engine.logprobs import token_logprobs
from astra_core.models.rows import pad_rows
from astra_parts.algorithms.value_head import ValueHead, token_outputs
from astra_parts.testing import tiny_language_model

CONTEXTS = [(4, 5, 0), (4, 6, 7, 8, 0), (9, 0)]
PROBES = [(2, 3, 0), (6, 0), ()]


@pytest.fixture(params=["llama", "gpt2"])
def attacker(request):
    return tiny_language_model(3, kind=request.param, is_trained=True)


def head_of(attacker):
    head = ValueHead(attacker)
    with torch.no_grad():
        for index, parameter in enumerate(head.parameters()):
            draw = torch.Generator().manual_seed(index)
            parameter.copy_(torch.randn(parameter.shape, generator=draw))
    return head


def test_log_probabilities_are_those_of_the_plain_pass(attacker):
    rows = pad_rows(CONTEXTS, PROBES, pad_id=0)
    output = token_outputs(attacker.model, rows, with_entropies=True)

    assert torch.equal(token_logprobs(attacker.model, rows), output.logprobs)
    # The entropy of the first token's distribution, by the whole vocabulary.
    first = token_logprobs(
        attacker.model,
        pad_rows([CONTEXTS[0]] * attacker.vocabulary_size, [(i,) for i in range(20)], pad_id=0),
    )
    assert -float((first.exp() * first).sum().detach()) == pytest.approx(
        float(output.entropies[0, 0].detach()), rel=1e-4
    )


def test_a_value_belongs_to_the_state_before_its_token(attacker):
    head = head_of(attacker)
    before, *_ = head.values(CONTEXTS, PROBES, tokens_per_batch=512)
    # What is read later cannot change it; what was read before does.
    longer = [CONTEXTS[0] + PROBES[0][:2]]
    after = head.values(longer, [PROBES[0][2:]], tokens_per_batch=512)[0]
    other_end = head.values(CONTEXTS[:1], [(2, 9, 9)], tokens_per_batch=512)[0]

    assert before[2:] == pytest.approx(after, abs=1e-5)
    assert before[:2] == pytest.approx(other_end[:2], abs=1e-5)
    assert before[2] != pytest.approx(other_end[2], abs=1e-3)


def test_values_do_not_depend_on_the_batch_and_end_with_the_one_after_the_probe(attacker):
    head = head_of(attacker)
    together = head.values(CONTEXTS, PROBES, tokens_per_batch=512)
    alone = head.values(CONTEXTS, PROBES, tokens_per_batch=1)

    assert [4, 3, 1] == [len(own) for own in together]
    for some, others in zip(together, alone, strict=True):
        assert some == pytest.approx(others, abs=1e-5)
    # The last entry is the first of whoever goes on from there.
    going_on = head.values([CONTEXTS[1] + PROBES[1]], [(2,)], tokens_per_batch=512)[0]
    assert together[1][-1] == pytest.approx(going_on[0], abs=1e-5)


def test_a_new_head_expects_nothing_and_needs_no_random_numbers(attacker):
    state = torch.get_rng_state()
    head = ValueHead(attacker)
    untouched = torch.equal(state, torch.get_rng_state())
    values = head(torch.ones(2, 3, 16))

    assert untouched
    assert (2, 3) == values.shape
    assert 0.0 == float(values.detach().abs().max())


def test_loading_keeps_the_parameters_the_optimiser_knows(attacker):
    head, other = head_of(attacker), ValueHead(attacker)
    known = other.parameters()
    other.load_state({name: value.clone() for name, value in head.state().items()})

    assert all(a is b for a, b in zip(known, other.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b in zip(head.parameters(), known, strict=True))
