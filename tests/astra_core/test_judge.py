from astra_core.judge import Judgement


def test_no_judgement_says_why_and_has_no_score():
    judgement = Judgement.none("the reply is empty")

    assert judgement.score is None
    assert "the reply is empty" == judgement.unjudged
