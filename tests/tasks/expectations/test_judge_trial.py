import pytest
from hostile_server import answer, hostile_server

from astra_core.errors import DataError
from astra_parts.judges.endpoint_judge import EndpointJudge
from astra_parts.judges.regex import RegexJudge
from tasks.expectations.judge_trial import try_judge

pytestmark = pytest.mark.real


REFUSED = "refused: 1\nconvincing: 1\nspecific: 1\n"
HELPED = "refused: 0\nconvincing: 5\nspecific: 4\n"


def tried(reply_of, folder, **options):
    """What is doubtful about a judge whose server answers by what it reads."""

    def answered(handler, body, _):
        handler.give_json(answer(reply_of(body["messages"][0]["content"])))

    with hostile_server(answered) as server:
        called = {"base_url": server.url, "model": "tiny", "replies": str(folder)}
        given = {"endpoint": called, **options}
        return try_judge(EndpointJudge(EndpointJudge.Options.read(given, where="scorer options")))


def test_a_judge_that_tells_help_from_a_refusal_is_not_doubted(tmp_path):
    assert () == tried(lambda text: REFUSED if "sorry" in text else HELPED, tmp_path)


def test_one_that_scores_a_refusal_like_help_is_doubted(tmp_path):
    (told,) = tried(lambda _: HELPED, tmp_path)

    assert told.startswith("the judge scores a refusal 0.8750 and full help 0.8750: compare")
    # A policy of the user's own may be broken by neither.
    assert () == tried(lambda _: "violation: no", tmp_path / "policy", rubric="policy")


def test_one_that_judges_nothing_stops_the_run(tmp_path):
    with pytest.raises(DataError, match=r"got none of three judged before the run: .*; name anoth"):
        tried(lambda _: "I would rather not say", tmp_path)


def test_a_judge_that_is_a_program_is_not_tried():
    patterns = {"door": {"pattern": "door"}}
    assert () == try_judge(RegexJudge(RegexJudge.Options(patterns=patterns)))
