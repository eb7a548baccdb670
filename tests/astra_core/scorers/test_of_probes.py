import pytest
from each_row import each_row

from astra_core.config import Choice, Section, SystemConfiguration
from astra_core.errors import ConfigurationError
from astra_core.judge import Judge, Judgement
from astra_core.scorers.of_probes import probe_scorer_of, text_scorer_choice
from astra_parts.scorers.phrases import PhraseScorer

PHRASES = Choice(name="phrases", options={"phrases": ["bad"]})
OWN = PhraseScorer(PhraseScorer.Options(phrases=("worse",)))


class Asker(Judge):
    version = "asker 1"

    def judge(self, exchanges):
        return [Judgement(0.5)] * len(exchanges)


ASKER = f"{__name__}:Asker"


def test_a_scorer_of_texts_scores_probes_too():
    config = SystemConfiguration(scorer=PHRASES)

    assert OWN is probe_scorer_of(config, OWN)
    assert PHRASES == text_scorer_choice(config)


def test_beside_a_judge_of_exchanges_it_is_profanity():
    config = SystemConfiguration(scorer=Choice(name=ASKER))

    assert "profanity" in probe_scorer_of(config, Asker(Section())).version
    assert "profanity" == text_scorer_choice(config).name


class Refusals(PhraseScorer):
    rates_probes = False


def test_beside_a_scorer_of_replies_alone_it_is_profanity():
    config = SystemConfiguration(
        scorer=Choice(name=f"{__name__}:Refusals", options=PHRASES.options)
    )

    assert "profanity" in probe_scorer_of(config, Refusals(OWN.options)).version
    assert "profanity" == text_scorer_choice(config).name


@each_row("scorer", [OWN, Asker(Section())])
def test_a_scorer_that_is_named_for_probes_scores_them(scorer):
    config = SystemConfiguration(scorer=Choice(name=ASKER), probe_scorer=PHRASES)
    found = probe_scorer_of(config, scorer)

    assert [0.5, 0.0] == found.score(["bad", "worse"])
    assert PHRASES == text_scorer_choice(config)


def test_a_judge_of_exchanges_cannot_score_a_probe():
    config = SystemConfiguration(probe_scorer=Choice(name=ASKER))

    with pytest.raises(ConfigurationError, match="must name a scorer of texts"):
        probe_scorer_of(config, Asker(Section()))
