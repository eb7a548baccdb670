import pytest
import torch
import transformers
from each_row import each_row
from transformers.pytorch_utils import Conv1D

from astra_core.config import LoraConfiguration
from astra_core.engine.machine import Machine
from astra_core.engine.products import packed_linear
from astra_core.engine.products.packed_linear import packed_linears
from astra_core.models.lora import add_adapters
from astra_core.seeding import torch_seeded

pytestmark = pytest.mark.routes

PACKS = Machine.here().packs
IDS = torch.tensor([[4, 5, 6, 7, 3], [1, 2, 3, 4, 9]])


def large_model(kind="gpt2"):
    """With layers of more than a hundred thousand weights."""
    sizes = {"vocab_size": 1200, "bos_token_id": None, "eos_token_id": 0}
    with torch_seeded(1):
        if kind == "gpt2":
            config = transformers.GPT2Config(
                n_embd=192, n_layer=2, n_head=2, initializer_range=0.1, **sizes
            )
            return transformers.GPT2LMHeadModel(config).eval()
        config = transformers.LlamaConfig(
            hidden_size=192,
            intermediate_size=600,
            num_hidden_layers=2,
            num_attention_heads=2,
            initializer_range=0.1,
            **sizes,
        )
        return transformers.LlamaForCausalLM(config).eval()


def replaced(model):
    """Layers that do not multiply as their class does."""
    return [name for name, module in model.named_modules() if "forward" in vars(module)]


@pytest.fixture
def fresh_trial():
    """The private operator is tried out anew, before and after."""
    trials = [own for own in vars(packed_linear).values() if hasattr(own, "cache_clear")]
    for trial in trials:
        trial.cache_clear()
    yield
    for trial in trials:
        trial.cache_clear()


@each_row("kind", ["gpt2", "llama"])
def test_the_output_is_the_same_to_rounding(kind):
    model = large_model(kind)
    with torch.no_grad():
        expected = model(IDS).logits
        with packed_linears(model, packs=PACKS):
            found, alone = model(IDS).logits, model(IDS[:1, -1:]).logits
        plain = model(IDS[:1, -1:]).logits

    size = float(expected.abs().max())
    torch.testing.assert_close(expected, found, rtol=0.0, atol=1e-5 * size)
    torch.testing.assert_close(plain, alone, rtol=0.0, atol=1e-5 * size)


@each_row("kind", ["gpt2", "llama"])
def test_layers_are_as_they_were_afterwards_also_after_an_error(kind):
    model = large_model(kind)
    with torch.no_grad():
        expected = model(IDS).logits
        with packed_linears(model, packs=PACKS):
            assert replaced(model)
        assert [] == replaced(model)
        with pytest.raises(ValueError, match="input_ids"), packed_linears(model, packs=PACKS):
            model(None)
        assert [] == replaced(model)
        assert torch.equal(expected, model(IDS).logits)


def test_weights_that_change_afterwards_are_used():
    model = large_model()
    with torch.no_grad():
        with packed_linears(model, packs=PACKS):
            model(IDS)
        before = model(IDS).logits
        for weight in model.parameters():
            weight.mul_(0.5)
        changed = model(IDS).logits
        with packed_linears(model, packs=PACKS):
            packed = model(IDS).logits

    assert not torch.allclose(before, changed)
    torch.testing.assert_close(changed, packed, rtol=0.0, atol=1e-5 * float(changed.abs().max()))


def test_models_of_the_same_weights_share_the_copy_while_they_talk():
    first, second = large_model(), large_model()
    with torch.no_grad():
        for own, other in zip(second.parameters(), first.parameters(), strict=True):
            own.data = other.data
        with packed_linears(first, packs=PACKS):
            kept = dict(packed_linear._COPIES)
            with packed_linears(second, packs=PACKS):
                assert kept.keys() == packed_linear._COPIES.keys()
                assert torch.equal(first(IDS).logits, second(IDS).logits)
            assert kept.keys() == packed_linear._COPIES.keys()

    assert kept
    assert not packed_linear._COPIES


def test_a_model_within_itself_is_packed_once():
    model = large_model()
    with torch.no_grad():
        expected = model(IDS).logits
        with packed_linears(model, packs=PACKS):
            with packed_linears(model, packs=PACKS):
                inner = model(IDS).logits
            outer = model(IDS).logits

    assert [] == replaced(model)
    for found in (inner, outer):
        torch.testing.assert_close(
            expected, found, rtol=0.0, atol=1e-5 * float(expected.abs().max())
        )


def test_adapters_are_not_left_out():
    model = large_model()
    add_adapters(model, LoraConfiguration(rank=4, alpha=64), seed=0)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.normal_(generator=torch.Generator().manual_seed(0))
        expected = model(IDS).logits
        with packed_linears(model, packs=PACKS):
            found = model(IDS).logits
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.zero_()
        bare = model(IDS).logits

    size = float(expected.abs().max())
    torch.testing.assert_close(expected, found, rtol=0.0, atol=1e-5 * size)
    assert not torch.allclose(expected, bare, atol=1e-2 * size)


def test_in_bfloat16_the_output_is_near_and_of_its_own_type():
    for kind in ("gpt2", "llama"):
        model = large_model(kind)
        with torch.no_grad():
            expected = model(IDS).logits
            with packed_linears(model, packs=PACKS, dtype=torch.bfloat16):
                found = model(IDS).logits

        assert torch.float32 == found.dtype
        assert [] == replaced(model)
        size = float(expected.abs().max())
        assert 0.0 < float((expected - found).abs().max()) < 0.05 * size


def test_small_layers_stay_as_they_are():
    small = torch.nn.Sequential(torch.nn.Linear(100, 100), Conv1D(100, 100))
    with packed_linears(small, packs=PACKS):
        assert [] == replaced(small)


def test_a_subclass_with_a_product_of_its_own_stays_as_it_is():
    class Doubled(torch.nn.Linear):
        def forward(self, rows):
            return 2.0 * super().forward(rows)

    layer = torch.nn.Sequential(Doubled(400, 400))
    rows = torch.randn(3, 400)
    expected = layer(rows)
    with packed_linears(layer, packs=PACKS):
        assert torch.equal(expected, layer(rows))


def test_weights_of_another_type_stay_as_they_are():
    model = torch.nn.Sequential(torch.nn.Linear(400, 400)).double()
    rows = torch.randn(3, 400, dtype=torch.float64)
    expected = model(rows)
    with packed_linears(model, packs=PACKS), torch.no_grad():
        assert torch.equal(expected, model(rows))


def broken(kind):
    def operator(*given):
        if kind == "raises":
            msg = "no such operator"
            raise RuntimeError(msg)
        rows, matrix = given[:2]
        return torch.nn.functional.linear(rows, matrix) + (0.5 if kind == "is off" else 0.0)

    return operator


@pytest.mark.usefixtures("fresh_trial")
@each_row("kind", ["raises", "is off", "is missing"])
def test_without_a_sound_operator_layers_stay_as_they_are(monkeypatch, kind):
    class Operators:
        """What ``torch.ops.mkldnn`` would be in another version of torch."""

        # A processor without AVX-512 is asked this too.
        _is_mkldnn_bf16_supported = staticmethod(torch.ops.mkldnn._is_mkldnn_bf16_supported)
        if kind != "is missing":
            _reorder_linear_weight = staticmethod(lambda matrix, _: matrix)
            _linear_pointwise = staticmethod(broken(kind))

    model = large_model()
    with torch.no_grad():
        expected = model(IDS).logits
        monkeypatch.setattr(torch.ops, "mkldnn", Operators())
        with packed_linears(model, packs=Machine.here().packs):
            assert torch.equal(expected, model(IDS).logits)


def test_layers_without_an_offset_are_served():
    model = torch.nn.Sequential(torch.nn.Linear(400, 300, bias=False))
    rows = torch.randn(2, 5, 400)
    with torch.no_grad():
        expected = model(rows)
        with packed_linears(model, packs=PACKS):
            assert replaced(model)
            torch.testing.assert_close(expected, model(rows), rtol=1e-4, atol=1e-5)
