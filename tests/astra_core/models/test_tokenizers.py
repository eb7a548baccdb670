import pytest

from astra_core.errors import ConfigurationError
from astra_core.models.tokenizers import tokenizer_digest
from astra_parts.testing import tiny_language_model


def test_tokenizer_digest_tells_vocabularies_apart_and_not_weights(tmp_path):
    tiny_language_model(1).save(tmp_path / "words")
    tiny_language_model(2).save(tmp_path / "other_weights")
    tiny_language_model(1, vocabulary=None).save(tmp_path / "bytes")
    words, same, other = (
        tokenizer_digest(tmp_path / name) for name in ("words", "other_weights", "bytes")
    )

    assert words == same
    assert words != other


def test_tokenizer_digest_asks_for_a_tokenizer(tmp_path):
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="must hold a tokenizer"):
        tokenizer_digest(tmp_path)
