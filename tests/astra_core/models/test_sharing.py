import pytest
import torch

from astra_core.errors import ConfigurationError
from astra_core.models.sharing import only_trained, share_weights
from astra_parts.testing import tiny_language_model


def pair(own):
    one, other = (tiny_language_model(seed, is_trained=True).model for seed in (1, 2))
    before = {name: p.detach().clone() for name, p in other.named_parameters()}
    share_weights(other, one, own=own, where="here")
    return one, other, before


def test_weights_are_the_same_parameters_but_those_of_its_own():
    one, other, before = pair("mlp")
    theirs = dict(one.named_parameters())
    for name, parameter in other.named_parameters():
        is_own = "mlp" in name
        assert is_own == (parameter is not theirs[name]), name
        if is_own and parameter.ndim > 1:
            assert torch.equal(before[name], parameter)
            assert not torch.equal(theirs[name], parameter)


def test_what_one_learns_the_other_knows():
    one, other, _ = pair("mlp")
    ids = torch.tensor([[2, 3, 4]])
    before = other(ids).logits.detach()
    with torch.no_grad():
        dict(one.named_parameters())["model.embed_tokens.weight"].add_(0.1)

    assert not torch.equal(before, other(ids).logits)


def test_a_tied_head_is_kept_by_either_of_its_names():
    for name in ("lm_head", "embed_tokens"):
        one, other, _ = pair(name)

        assert other.lm_head.weight is other.model.embed_tokens.weight
        assert other.lm_head.weight is not one.lm_head.weight
        assert other.model.norm.weight is one.model.norm.weight


def test_an_expression_without_a_weight_is_one_line():
    with pytest.raises(ConfigurationError, match="here must be found in the name of a weight"):
        pair("no such weight")


def test_what_no_trained_module_has_is_frozen():
    one, other, _ = pair("mlp")
    only_trained({"one": one, "other": other}, {"other"})

    assert all(p.requires_grad for p in other.parameters())
    frozen = {name for name, p in one.named_parameters() if not p.requires_grad}
    assert frozen == {name for name, _ in one.named_parameters() if "mlp" in name}
