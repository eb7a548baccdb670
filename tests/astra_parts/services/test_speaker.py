import pytest
from each_row import each_row
from played_service import PlayedService

from astra_core.config import GenerationConfiguration
from astra_core.errors import ConfigurationError, RolloutError
from astra_parts.services.speaker import KeptDraws, Speaker, check_plain
from astra_parts.testing import tiny_language_model

SHORT = GenerationConfiguration(max_new_tokens=4, min_new_tokens=0)
CONTEXTS, KEYS = [(3, 4), (5, 6)], [[b"1" * 16, b"2" * 16], [b"3" * 16]]


def said(speaker):
    model = tiny_language_model(1)
    found = speaker.continuations(model, CONTEXTS, KEYS, generation=SHORT)
    return [[each.token_ids for each in own.utterances] for own in found]


def test_what_was_drawn_is_kept_by_the_weights_that_drew_it(tmp_path):
    service = PlayedService()
    first = Speaker(service, KeptDraws(tmp_path / "kept"))
    drawn, scores = said(first), first.score(CONTEXTS, [(7, 8), (9,)])
    again = Speaker(service, KeptDraws(tmp_path / "kept"))

    assert drawn == said(again)
    assert scores == again.score(CONTEXTS, [(7, 8), (9,)])
    assert [2, 1] == [len(row) for row in scores]
    assert (3, 2) == (service.asked["draw"], service.asked["score"])
    service.published["other"] = service.published[None]
    again.path = "other"
    assert drawn == said(again)
    assert 6 == service.asked["draw"]


def test_scores_are_the_models_own(tmp_path):
    speaker, model = Speaker(PlayedService(), KeptDraws(tmp_path / "kept")), tiny_language_model(1)
    found = speaker.score(CONTEXTS, [(7, 8), (9,)])

    for ours, theirs in zip(
        found, model.continuation_logprobs(CONTEXTS, [(7, 8), (9,)]), strict=True
    ):
        assert theirs == pytest.approx(ours, abs=1e-5)


@each_row(("retries", "asked"), [(0, None), (1, 4)])
def test_a_failed_draw_is_asked_for_again(retries, asked, tmp_path):
    service = PlayedService(fails=[1])
    speaker = Speaker(service, KeptDraws(tmp_path / "kept"), retries=retries)
    if asked is None:
        with pytest.raises(RolloutError, match="2 of the 2 draws after a context must succeed"):
            said(speaker)
    else:
        assert 3 == sum(map(len, said(speaker)))
        assert asked == service.asked["draw"]


def test_enough_of_a_group_is_enough(tmp_path):
    speaker = Speaker(PlayedService(fails=[1]), KeptDraws(tmp_path / "kept"))
    speaker.min_group = 1

    assert () == said(speaker)[0][0]


@each_row("own", [{"temperature": 0.7}, {"top_p": 0.9}, {"min_new_tokens": 1}])
def test_sampling_that_a_service_does_not_do_is_refused(own):
    (name,) = own
    with pytest.raises(ConfigurationError, match=f"system.probe.{name} must be"):
        check_plain(SHORT.model_copy(update=own))
