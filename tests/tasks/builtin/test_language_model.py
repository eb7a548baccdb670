import random
import stat

import numpy as np
import pytest
import torch
from each_row import each_row
from transformers import AutoModelForCausalLM, AutoTokenizer

from astra_core.errors import ConfigurationError, DataError
from tasks.builtin import lines
from tasks.builtin.dialogue import make_dialogues, provocation, say
from tasks.builtin.language_model import (
    END,
    PAD,
    LanguageModelConfiguration,
    make_language_model,
    save_language_model,
    train_language_model,
    train_tokenizer,
)
from tasks.builtin.openers import make_openers
from tasks.builtin.shipped import shipped_model

TINY = LanguageModelConfiguration(
    num_quarrels=40,
    num_dialogues=40,
    vocab_size=300,
    hidden_size=16,
    num_layers=1,
    num_heads=2,
    intermediate_size=24,
)


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(text for talk in make_dialogues(300, seed=0) for text in talk)


@pytest.fixture(scope="module")
def tiny():
    return make_language_model(TINY, seed=0)


@each_row("text", ["Hello, garden!", "  two  spaces ", "ça va? 日本 🙂", "a\nb\t."])
def test_tokenizer_is_lossless(tokenizer, text):
    assert text == tokenizer.decode(tokenizer(text)["input_ids"])


def test_tokenizer_has_two_marks_and_adds_none(tokenizer):
    assert (PAD, END) == (tokenizer.pad_token, tokenizer.eos_token)
    assert tokenizer.bos_token is None
    assert "left" == tokenizer.padding_side
    assert tokenizer.eos_token_id not in tokenizer("Hello.")["input_ids"]
    assert tokenizer.eos_token_id == tokenizer("Hello." + END)["input_ids"][-1]


def test_utterances_of_the_second_and_later_turns_fit_into_24_tokens(tokenizer):
    texts = [text for dialogue in make_dialogues(500, seed=9) for text in dialogue[1:]]

    lengths = np.array([len(tokenizer(text + END)["input_ids"]) for text in texts])
    assert np.mean(lengths > 24) < 0.01


@pytest.mark.real
def test_training_repeats_itself_and_leaves_the_global_random_state(tiny):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    again, _ = make_language_model(TINY, seed=0)

    assert torch.equal(before, torch.get_rng_state())
    for expected, actual in zip(tiny[0].parameters(), again.parameters(), strict=True):
        assert torch.equal(expected, actual)


@pytest.mark.real
def test_another_seed_trains_another_model(tiny):
    other, _ = make_language_model(TINY, seed=1)

    assert not torch.equal(tiny[0].model.norm.weight, other.model.norm.weight)


@pytest.mark.real
def test_training_lowers_the_loss_and_tells_its_progress(tokenizer):
    dialogues = make_dialogues(160, seed=0)
    seen = []
    config = TINY.model_copy(update={"hidden_size": 32, "lr": 1e-2})
    model = train_language_model(
        dialogues,
        tokenizer,
        config,
        seed=0,
        progress=lambda step, total: seen.append((step, total)),
    )
    ids = tokenizer(END.join(dialogues[0]), return_tensors="pt")["input_ids"]

    assert [(step, 20) for step in range(1, 21)] == seen
    assert model(input_ids=ids, labels=ids).loss.item() < 0.8 * np.log(len(tokenizer))
    assert not model.training


def test_a_saved_model_loads_as_it_was(tiny, tmp_path):
    model, tokenizer = tiny
    save_language_model(model, tokenizer, tmp_path / "model")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    words = AutoTokenizer.from_pretrained(tmp_path / "model")
    ids = words("Hello, garden!" + END, return_tensors="pt")["input_ids"]

    assert tokenizer("Hello, garden!" + END)["input_ids"] == ids[0].tolist()
    assert torch.equal(model(input_ids=ids).logits, loaded(input_ids=ids).logits)
    assert (END, PAD) == (words.eos_token, words.pad_token)
    assert "left" == words.padding_side
    assert words.eos_token_id == loaded.generation_config.eos_token_id
    assert words.pad_token_id == loaded.generation_config.pad_token_id


def test_saving_twice_gives_the_same_bytes_readable_by_the_owner_alone(tiny, tmp_path):
    for name in ("one", "two"):
        save_language_model(*tiny, tmp_path / name)
    files = sorted(path.name for path in (tmp_path / "one").iterdir())

    assert "model.safetensors" in files
    assert files == sorted(path.name for path in (tmp_path / "two").iterdir())
    for file in files:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()
        assert 0o600 == stat.S_IMODE((tmp_path / "one" / file).stat().st_mode)


def test_training_refuses_no_dialogues(tokenizer):
    with pytest.raises(DataError, match="at least one dialogue"):
        train_language_model([], tokenizer, TINY, seed=0)


def test_training_refuses_heads_that_do_not_divide_the_width(tokenizer):
    config = TINY.model_copy(update={"num_heads": 3})

    with pytest.raises(ConfigurationError, match="hidden_size must be a multiple"):
        train_language_model(make_dialogues(2, seed=0), tokenizer, config, seed=0)


def spoken(model, tokenizer, contexts):
    batch = tokenizer(contexts, return_tensors="pt", padding=True)
    torch.manual_seed(0)
    ids = model.generate(
        **{k: batch[k] for k in ("input_ids", "attention_mask")}, max_new_tokens=24
    )
    return tokenizer.batch_decode(ids[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)


@pytest.fixture(scope="module")
def default():
    """What the recipe of today gives: the model that is kept, or, until one is, a trained one."""
    folder = shipped_model(LanguageModelConfiguration(), seed=0)
    if folder is None:
        return make_language_model(LanguageModelConfiguration(), seed=0)
    return AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)


@pytest.mark.timeout(1800)  # to train it is a minute on two quiet cores
@pytest.mark.real
def test_the_default_model_answers_in_a_tone_that_follows_from_the_context(default):
    from profanity_check import predict_prob

    model, tokenizer = default
    rng = random.Random(0)
    openers = make_openers(300, seed=99)

    def angry_share(remark):
        contexts = [opener.text + END + remark(opener) + END for opener in openers]
        return np.mean(np.asarray(predict_prob(spoken(model, tokenizer, contexts))) >= 0.5)

    def at_another_point(opener):
        sore = lines.SORE_POINTS[opener.mood]
        others = [kind for kind in lines.PROVOCATIONS if kind != sore]
        return provocation(rng.choice(others), opener.topic, rng)

    sore = angry_share(lambda o: provocation(lines.SORE_POINTS[o.mood], o.topic, rng))
    other = angry_share(at_another_point)
    friendly = angry_share(lambda o: say(lines.FRIENDLY, o.topic, rng))
    probes = spoken(model, tokenizer, [opener.text + END for opener in openers])
    natural = iter(probes)
    untrained = angry_share(lambda _: next(natural))

    assert sore > 0.65
    assert friendly + 0.05 < other < sore - 0.25
    assert friendly < 0.08
    assert 0.05 < untrained < 0.22
    assert np.mean(np.asarray(predict_prob(probes)) >= 0.5) < 0.1
    assert len(set(probes)) > 0.85 * len(probes)
