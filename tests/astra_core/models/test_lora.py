import pytest
import torch
from each_row import each_row
from tiny_training import configured, trainer_of, weights_of

from astra_core.config import LoraConfiguration
from astra_core.errors import ConfigurationError
from astra_core.models.language_model import LanguageModel
from astra_core.models.lora import (
    ADAPTERS,
    add_adapters,
    base_among,
    merged_state,
    read_adapters,
    save_adapters,
    share_frozen,
)
from astra_core.models.pretrained import weights_digest
from astra_parts.testing import tiny_language_model

CONTEXTS = [(4, 5, 0), (2, 3, 4, 0)]
PROBES = [(2, 3, 0), (5, 0)]


def logprobs(model):
    return [x for row in model.continuation_logprobs(CONTEXTS, PROBES) for x in row]


def adapted(kind="llama", **changes):
    model = tiny_language_model(kind=kind, is_trained=True)
    add_adapters(model.model, LoraConfiguration(**{"rank": 2, **changes}), seed=0)
    return model


def stir(model):
    """Moves the adapters away from the start, where they do nothing."""
    for name, parameter in model.model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(1))
    return model


@each_row("kind", ["llama", "gpt2"])
def test_adapters_alone_learn_and_change_nothing_at_first(kind):
    model = adapted(kind)
    trained = [name for name, p in model.model.named_parameters() if p.requires_grad]

    assert logprobs(tiny_language_model(kind=kind)) == logprobs(model)
    assert trained
    assert all("lora_" in name for name in trained)
    assert not any(module.training for module in model.model.modules())


def test_adapters_depend_on_the_seed_alone():
    weights = []
    for seed in (0, 0, 1):
        model = tiny_language_model(is_trained=True)
        torch.manual_seed(len(weights))
        add_adapters(model.model, LoraConfiguration(rank=2), seed=seed)
        weights.append(dict(model.model.named_parameters()))
    names = [name for name in weights[0] if "lora_A" in name]

    assert all(torch.equal(weights[0][name], weights[1][name]) for name in names)
    assert not any(torch.equal(weights[0][name], weights[2][name]) for name in names)


@each_row("kind", ["llama", "gpt2"])
def test_the_export_is_a_plain_model_that_says_the_same(kind, tmp_path):
    model = stir(adapted(kind))
    kept = {name: p.detach().clone() for name, p in model.model.named_parameters()}
    model.save(tmp_path)
    plain = LanguageModel.load(tmp_path)

    assert not any("lora" in name for name, _ in plain.model.named_parameters())
    assert logprobs(model) == pytest.approx(logprobs(plain), abs=1e-4)
    assert logprobs(tiny_language_model(kind=kind)) != pytest.approx(logprobs(plain), abs=1e-2)
    for name, parameter in model.model.named_parameters():
        assert torch.equal(kept[name], parameter)


def saved(folder, kind="llama", base="base"):
    """A model with adapters, and its folder, where these are kept beside the merged weights."""
    model, origin = stir(adapted(kind)), folder / base
    tiny_language_model(kind=kind).save(origin)
    model.save(folder / "merged")
    save_adapters(model.model, folder / "merged", base=weights_digest(origin))
    return model, folder / "merged"


def test_a_digest_does_not_depend_on_where_the_base_is(tmp_path):
    near, far = (saved(tmp_path, base=base)[1] for base in ("base", "at/some/other/place"))

    assert weights_digest(near) == weights_digest(far)


def test_adapters_stay_apart_beside_their_own_base_alone(tmp_path):
    model, folder = saved(tmp_path)
    tiny_language_model(9).save(tmp_path / "other")
    (tmp_path / "base").rename(tmp_path / "moved")
    moved, other = tmp_path / "moved", tmp_path / "other"

    assert base_among([other, moved], folder) == moved
    assert base_among([other], folder) is None
    apart = LanguageModel.load(folder, beside=[other, moved])
    assert logprobs(model) == logprobs(apart)
    assert not hasattr(LanguageModel.load(folder, beside=[other]).model, "peft_config")


def test_who_draws_after_adapters_are_read_does_not_notice(tmp_path):
    _, folder = saved(tmp_path)
    drawn = []
    for beside in ([], [tmp_path / "base"]):
        torch.manual_seed(0)
        LanguageModel.load(folder, beside=beside)
        drawn.append(torch.rand(1))

    assert drawn[0] == drawn[1]


def test_damaged_adapters_are_told_in_a_line(tmp_path):
    _, folder = saved(tmp_path)
    (folder / ADAPTERS / "adapter_model.safetensors").write_bytes(b"")

    with pytest.raises(ConfigurationError, match=r"adapter must hold adapters as they were saved"):
        LanguageModel.load(folder, beside=[tmp_path / "base"])


@each_row("config", [None, '{"peft_type": "LORA"}', '{"base_model_name_or_path": "a/b"}'])
def test_another_folder_named_adapter_is_left_alone(config, tmp_path):
    tiny_language_model().save(tmp_path)
    (tmp_path / ADAPTERS).mkdir(exist_ok=True)
    if config is not None:
        (tmp_path / ADAPTERS / "adapter_config.json").write_text(config)

    assert logprobs(LanguageModel.load(tmp_path, beside=[tmp_path])) == logprobs(
        tiny_language_model()
    )


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")
@each_row("kind", ["llama", "gpt2"])
def test_peft_and_we_read_adapters_as_they_were(kind, tmp_path):
    from peft import PeftModel

    model, folder = saved(tmp_path, kind)
    theirs, ours = tiny_language_model(kind=kind), tiny_language_model(kind=kind)
    theirs.model = PeftModel.from_pretrained(theirs.model, str(folder / ADAPTERS)).base_model.model
    read_adapters(ours.model, folder)

    assert logprobs(model) == logprobs(ours) == logprobs(theirs)


def test_frozen_weights_that_are_equal_are_in_memory_once():
    model, origin, other = adapted(), tiny_language_model(), tiny_language_model(1)
    before = logprobs(model)
    share_frozen(model.model, other.model)
    share_frozen(model.model, origin.model)
    kept = {own.data_ptr() for own in origin.model.parameters()}
    own = {name: p.data_ptr() in kept for name, p in model.model.named_parameters()}

    assert before == logprobs(model) == logprobs(origin) != logprobs(stir(model))
    assert own == {name: "lora_" not in name for name in own}
    assert before == logprobs(origin) != logprobs(other)


def test_a_model_without_adapters_has_nothing_to_merge():
    assert merged_state(tiny_language_model().model) is None


def test_layers_that_do_not_exist_are_refused():
    with pytest.raises(ConfigurationError, match=r"target_modules must name linear layers"):
        adapted(target_modules=("nowhere",))


@pytest.mark.real
def test_a_run_with_adapters_continues_where_it_stopped(tmp_path):
    config = configured(lora={"rank": 2}, eval_every=1, metric="eval/kl_nats")
    base = weights_of(trainer_of(configured()))
    whole = trainer_of(config, tmp_path / "whole")
    whole.train()
    for report in trainer_of(config, tmp_path / "cut").steps():
        if report.training_step == 2:
            break
    resumed = trainer_of(config, tmp_path / "cut")
    assert resumed.resume()
    resumed.train()
    checkpoint = resumed.store.newest()
    weights = [name for name in checkpoint.tensors if name.startswith("model/")]

    assert weights_of(whole) == weights_of(resumed)
    assert weights
    assert all("lora_" in name for name in weights)
    assert base != weights_of(whole)
    # Of the best the adapters are kept; it was read back and examined again.
    best = resumed.store.model(resumed.best.model)
    assert {"adapters.safetensors", "manifest.json"} == {path.name for path in best.iterdir()}
