from copy import deepcopy

import pytest
import torch

from astra_core.errors import ConfigurationError
from astra_parts.rewards.embeddings import Embedder, EmbedderOptions
from astra_parts.testing import tiny_language_model, tiny_prompts, tiny_system


def embedder(**options):
    found = Embedder(EmbedderOptions(**options))
    found.prepare(tiny_system(), tiny_prompts(4))
    return found


def test_a_text_is_a_unit_vector_and_no_text_is_zeros():
    vectors = embedder()(["you are bad", "why now", ""])

    assert [1.0, 1.0, 0.0] == pytest.approx(vectors.norm(dim=1).tolist(), abs=1e-5)


def test_it_is_the_mean_hidden_state_less_the_mean_of_the_prompts():
    system, prompts = tiny_system(), tiny_prompts(4)

    def state(text):
        ids = torch.tensor([system.reference.encode(text)])
        return system.reference.model.base_model(input_ids=ids).last_hidden_state[0].mean(dim=0)

    with torch.no_grad():
        centre = torch.stack([state(prompt.text) for prompt in prompts]).mean(dim=0)
        expected = torch.nn.functional.normalize(state("you are bad") - centre, dim=0)

    assert expected.tolist() == pytest.approx(embedder()(["you are bad"])[0].tolist(), abs=1e-5)


def test_the_same_text_has_one_vector_whatever_stands_beside_it():
    texts = ["you are bad", "why now so what they said", "you are bad"]
    vectors = embedder()(texts)

    assert torch.equal(vectors[0], vectors[2])
    assert vectors[0].tolist() == pytest.approx(embedder()(texts[:1])[0].tolist(), abs=1e-5)


def test_a_folder_gives_other_vectors(tmp_path):
    tiny_language_model(seed=7, kind="gpt2").save(tmp_path)
    own = embedder(folder=str(tmp_path))(["you are bad"])

    assert own.shape == (1, 16)
    assert not torch.allclose(own, embedder()(["you are bad"]))


def test_a_folder_that_is_none_is_refused_before_anything_is_loaded(tmp_path):
    with pytest.raises(ConfigurationError, match="must be a Hugging Face folder"):
        Embedder(EmbedderOptions(folder=str(tmp_path / "nothing")))


def test_a_folder_that_cannot_be_loaded_is_one_line(tmp_path):
    (tmp_path / "config.json").write_text("{}", "utf-8")
    with pytest.raises(ConfigurationError, match="must hold a model and a tokenizer") as refused:
        embedder(folder=str(tmp_path))
    assert "\n" not in str(refused.value)


def test_it_must_be_prepared():
    with pytest.raises(ConfigurationError, match="must know the system"):
        Embedder(EmbedderOptions())(["why"])


def test_a_copy_has_a_centre_of_its_own_and_the_same_model():
    first = embedder()
    before = first(["why now"]).clone()
    other = deepcopy(first)
    other.prepare(tiny_system(), tiny_prompts(1))

    assert torch.equal(before, first(["why now"]))
    assert not torch.allclose(before, other(["why now"]))
