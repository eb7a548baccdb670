import os
import shutil

import pytest
import torch
from each_row import each_row

from astra_core.config import GenerationConfiguration
from astra_core.errors import ConfigurationError
from astra_core.models.language_model import LanguageModel
from astra_core.seeding import derive_key
from astra_parts.testing import tiny_language_model

SHORT = GenerationConfiguration(max_new_tokens=8)
CONTEXTS = [(4, 5, 0), (6,), (7, 8, 9, 10, 11, 0), (3, 3), (12, 2, 0, 5)]
SETTINGS = [
    SHORT,
    GenerationConfiguration(
        max_new_tokens=8,
        min_new_tokens=4,
        repetition_penalty=1.5,
        temperature=1.4,
        top_k=10,
        top_p=0.95,
        min_p=0.02,
    ),
]


def keys_for(count, *, replies=2):
    return [[derive_key(1, row, reply) for reply in range(replies)] for row in range(count)]


@pytest.fixture(scope="module", params=["llama", pytest.param("gpt2", marks=pytest.mark.real)])
def model(request):
    return tiny_language_model(2, kind=request.param)


@each_row("generation", SETTINGS)
def test_tokens_are_the_same_alone_in_any_order_and_at_any_batch_size(model, generation):
    keys = keys_for(len(CONTEXTS))
    together = model.continuations(CONTEXTS, keys, generation)
    alone = [
        model.continuations([context], [own], generation)[0]
        for context, own in zip(CONTEXTS, keys, strict=True)
    ]
    turned = model.continuations(CONTEXTS[::-1], keys[::-1], generation)[::-1]
    narrow = model.continuations(CONTEXTS, keys, generation, tokens_per_batch=1)
    single = model.continuations(
        [context for context in CONTEXTS for _ in range(2)],
        [[key] for own in keys for key in own],
        generation,
        tokens_per_batch=40,
    )

    said = [[u.token_ids for u in c.utterances] for c in together]
    for others in (alone, turned, narrow):
        assert said == [[u.token_ids for u in c.utterances] for c in others]
    assert [ids for own in said for ids in own] == [c.utterances[0].token_ids for c in single]
    assert len({ids for own in said for ids in own}) > len(CONTEXTS)


def test_log_probabilities_at_sampling_are_those_of_the_unmodified_model(model):
    keys = keys_for(len(CONTEXTS))
    for generation in SETTINGS:
        for context, own in zip(
            CONTEXTS, model.continuations(CONTEXTS, keys, generation), strict=True
        ):
            again = model.continuation_logprobs(
                [context] * 2, [utterance.token_ids for utterance in own.utterances]
            )
            for utterance, logprobs in zip(own.utterances, again, strict=True):
                assert logprobs == pytest.approx(utterance.logprobs, abs=1e-5)


@pytest.mark.real
def test_tokens_follow_the_distribution_of_the_model(model):
    context, count = (4, 5, 0), 4000
    keys = [[derive_key(0, index) for index in range(count)]]
    one = GenerationConfiguration(max_new_tokens=1, min_new_tokens=0)
    (found,) = model.continuations([context], keys, one, tokens_per_batch=10**9)

    drawn = torch.tensor([utterance.token_ids[0] for utterance in found.utterances])
    shares = torch.bincount(drawn, minlength=model.vocabulary_size) / count
    expected = model.model(torch.tensor([context])).logits[0, -1].softmax(dim=0)
    # Four standard errors of a share of one half.
    torch.testing.assert_close(expected, shares, rtol=0.0, atol=0.032)


def test_an_utterance_keeps_its_end_token_and_nothing_after_it(model):
    keys = keys_for(len(CONTEXTS), replies=20)
    found = model.continuations(CONTEXTS, keys, SHORT)
    utterances = [utterance for own in found for utterance in own.utterances]

    assert {True, False} == {utterance.has_ended for utterance in utterances}
    for utterance in utterances:
        assert utterance.has_ended == (utterance.token_ids[-1] == 0)
        assert 0 not in utterance.token_ids[:-1]
        assert utterance.has_ended or len(utterance.token_ids) == 8
        assert len(utterance.logprobs) == len(utterance.token_ids)
        assert utterance.text == model.decode(utterance.token_ids)
        assert "</s>" not in utterance.text


def test_no_utterance_ends_before_the_minimum(model):
    generation = GenerationConfiguration(max_new_tokens=8, min_new_tokens=5)
    found = model.continuations(CONTEXTS, keys_for(len(CONTEXTS), replies=20), generation)
    lengths = {len(utterance.token_ids) for own in found for utterance in own.utterances}

    assert min(lengths) == 6  # five tokens and the end
    assert max(lengths) == 8


def test_suffix_log_probabilities_equal_those_of_a_pass_of_their_own(model):
    lengths = [2, 0, 4, 1, 3]
    found = model.continuations(
        CONTEXTS, keys_for(len(CONTEXTS)), SHORT, suffix_lengths=lengths, tokens_per_batch=60
    )
    cuts = [len(context) - length for context, length in zip(CONTEXTS, lengths, strict=True)]
    expected = model.continuation_logprobs(
        [context[:cut] for context, cut in zip(CONTEXTS, cuts, strict=True)],
        [context[cut:] for context, cut in zip(CONTEXTS, cuts, strict=True)],
    )

    for logprobs, own in zip(expected, found, strict=True):
        assert logprobs == pytest.approx(own.suffix_logprobs, abs=1e-5)


def test_asking_for_suffixes_changes_no_token(model):
    keys = keys_for(len(CONTEXTS))
    plain = model.continuations(CONTEXTS, keys, SHORT)
    scored = model.continuations(CONTEXTS, keys, SHORT, suffix_lengths=[1, 0, 3, 1, 2])

    assert [[u.token_ids for u in c.utterances] for c in plain] == [
        [u.token_ids for u in c.utterances] for c in scored
    ]


def test_no_context_gives_nothing(model):
    assert model.continuations([], [], SHORT) == []
    assert model.continuation_logprobs([], []) == []


def test_budget_and_order_do_not_change_continuation_log_probabilities(model):
    continuations = [(3, 0), (5,), (), (6, 7, 8), (2, 2)]
    wide = model.continuation_logprobs(CONTEXTS, continuations)
    narrow = model.continuation_logprobs(CONTEXTS, continuations, tokens_per_batch=1)
    turned = model.continuation_logprobs(CONTEXTS[::-1], continuations[::-1])[::-1]

    assert [2, 1, 0, 3, 2] == [len(row) for row in wide]
    for own, other, third in zip(wide, narrow, turned, strict=True):
        assert own == pytest.approx(other, abs=1e-5)
        assert own == pytest.approx(third, abs=1e-5)


@each_row(
    ("separator", "ids", "expected"),
    [
        (None, (5, 6), (5, 6, 0)),
        (None, (5, 6, 0), (5, 6, 0)),
        (None, (), (0,)),
        ("so", (5, 6), (5, 6, 17)),
        ("so", (5, 6, 17), (5, 6, 17)),
        ("so", (5, 6, 0), (5, 6, 17)),
        ("so now", (5, 6), (5, 6, 17, 19)),
        ("so now", (5, 17, 19), (5, 17, 19)),
        ("so now", (5, 17), (5, 17, 17, 19)),
        ("so now", (5, 0), (5, 17, 19)),
        ("so now", (19,), (19, 17, 19)),
        ("so now", (), (17, 19)),
    ],
)
def test_a_closed_utterance_ends_in_one_separator(separator, ids, expected):
    model = tiny_language_model(separator=separator)

    assert expected == model.closed_ids(ids)
    assert expected == model.closed_ids(model.closed_ids(ids))


def test_a_separator_of_one_token_ends_an_utterance():
    assert tiny_language_model().end_ids == (0,)
    assert tiny_language_model(separator="so").end_ids == (0, 17)
    assert tiny_language_model(separator="so now").end_ids == (0,)


def test_a_separator_that_encodes_to_nothing_is_refused():
    with pytest.raises(ConfigurationError, match=r"system\.separator must encode to at least one"):
        tiny_language_model(separator="")


def test_a_null_separator_needs_an_end_of_sequence_token():
    model = tiny_language_model()
    model.tokenizer.eos_token = None

    with pytest.raises(ConfigurationError, match=r"system\.separator must be given"):
        LanguageModel(model.model, model.tokenizer)


def test_a_conversation_opens_with_the_token_that_the_tokenizer_opens_with():
    from tokenizers import processors

    model = tiny_language_model()
    assert model.opening_ids == ()
    model.tokenizer.bos_token = "you"  # noqa: S105
    assert model.opening_ids == ()
    model.tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="you $A", special_tokens=[("you", 2)]
    )
    assert model.opening_ids == (2,)
    assert model.encode("are") == (3,)


@each_row("kind", ["llama", "gpt2"])
def test_a_saved_model_is_the_same_when_loaded(tmp_path, kind):
    model = tiny_language_model(3, kind=kind)
    model.save(tmp_path)
    loaded = LanguageModel.load(tmp_path)

    assert model.vocabulary_digest() == loaded.vocabulary_digest()
    assert model.end_ids == loaded.end_ids
    keys = keys_for(len(CONTEXTS))
    assert model.continuations(CONTEXTS, keys, SHORT) == loaded.continuations(CONTEXTS, keys, SHORT)
    assert model.num_parameters == loaded.num_parameters
    assert loaded.max_positions == 128
    assert not any(p.requires_grad for p in loaded.model.parameters())
    trained = LanguageModel.load(tmp_path, is_frozen=False)
    assert all(p.requires_grad for p in trained.model.parameters())
    assert not trained.model.training


@each_row("damage", ["missing", "no weights", "cut off"])
def test_a_folder_that_cannot_be_loaded_is_named(tmp_path, damage):
    folder = tmp_path / "model"
    tiny_language_model().save(folder)
    if damage == "missing":
        shutil.rmtree(folder)
    elif damage == "no weights":
        (folder / "model.safetensors").unlink()
    else:
        os.truncate(folder / "model.safetensors", 500)

    with pytest.raises(ConfigurationError, match=r"must (be a Hugging Face|hold)") as caught:
        LanguageModel.load(folder)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_tokenizers_whose_ids_mean_the_same_have_one_digest():
    first, same = tiny_language_model(1), tiny_language_model(2)
    turned = tiny_language_model(1, vocabulary=("are", "you"))

    assert first.vocabulary_digest() == same.vocabulary_digest()
    assert first.vocabulary_digest() != turned.vocabulary_digest()
    assert first.vocabulary_digest() != tiny_language_model(separator="so").vocabulary_digest()
    first.tokenizer("are you", truncation=True, max_length=1, padding=False)
    assert first.vocabulary_digest() == same.vocabulary_digest()


def test_a_model_is_loaded_onto_the_device_it_is_asked_for(tmp_path):
    tiny_language_model(2).save(tmp_path)

    assert LanguageModel.load(tmp_path).device == torch.device("cpu")
    assert LanguageModel.load(tmp_path, device="meta").device == torch.device("meta")
