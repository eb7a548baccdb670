import pytest
import torch
from tiny_judges import bert_folder, exchange

from astra_parts.judges.embedding_similarity import SimilarityJudge
from astra_parts.testing import check_judge, tiny_language_model

WORDS = ("bad", "good", "you", "are", "so", "kind")


@pytest.fixture(scope="module", params=["encoder", "causal"])
def folder(request, tmp_path_factory):
    where = tmp_path_factory.mktemp(request.param)
    if request.param == "encoder":
        return bert_folder(where, WORDS, labels=("a", "b"))
    tiny_language_model(3).save(where)
    return str(where)


def score(folder, reply, reference, **options):
    judge = SimilarityJudge(SimilarityJudge.Options(path=folder, **options))
    return judge.judge([exchange(reply, reference=reference)])[0]


def test_similarity_keeps_the_contract(folder):
    check_judge(SimilarityJudge, path=folder, batch_size=2)


def test_the_same_words_are_as_near_as_can_be(folder):
    assert 1.0 == score(folder, "you are bad", "you are bad").score
    assert score(folder, "so kind", "you are bad").score < 1.0


def test_the_score_is_the_cosine_of_mean_states_above_the_floor(folder):
    judge = SimilarityJudge(SimilarityJudge.Options(path=folder))
    means = []
    for text in ("so kind", "you are bad"):
        batch = {"input_ids": torch.tensor([judge.tokenizer(text)["input_ids"]])}
        with torch.no_grad():
            means.append(judge.model(**batch).last_hidden_state[0].mean(dim=0))
    cosine = float(torch.nn.functional.cosine_similarity(*means, dim=0))

    for floor in (-1.0, 0.0, 0.5):
        expected = max(0.0, (cosine - floor) / (1 - floor))
        found = score(folder, "so kind", "you are bad", floor=floor).score
        assert expected == pytest.approx(found, abs=1e-4)


def test_what_lies_beyond_max_tokens_is_not_read(folder):
    far = score(folder, "so kind bad", "so kind good")
    near = score(folder, "so kind bad", "so kind good", max_tokens=2)

    assert near.score == 1.0 > far.score


def test_without_a_reference_or_a_reply_there_is_no_judgement(folder):
    assert "reference_reply" in score(folder, "bad", "").unjudged
    assert "empty" in score(folder, "", "bad").unjudged
