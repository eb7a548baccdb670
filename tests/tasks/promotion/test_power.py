import pytest
from each_row import each_row

from benchmarks.measures.gate import Attacker, promoted_share
from tasks.params.prompts import FIRST_DUEL, FOLLOWING_DUELS
from tasks.params.schema import Params
from tasks.promotion.power import Exam


def params(**prompts):
    return Params.read({"prompts": prompts}, where="")


FILE = params(source="file", path="prompts.txt")


@each_row(
    ("own", "num_test", "first", "following"),
    [
        (params(), 500, 200, 400),  # fresh ones are made
        (FILE, 204, 200, 4),
        (FILE, 900, 200, 400),
        (FILE, 60, 60, 0),
    ],
)
def test_the_first_duel_takes_its_prompts_before_the_others(own, num_test, first, following):
    exam = Exam(own, num_test)

    assert (first, following) == (exam.first, exam.following)


def test_the_power_is_that_of_the_normal_distribution():
    exam = Exam(FILE, 900)

    # A level of 0.05 / 30, z 2.935; a standard error of sqrt(0.25 / 200): 2.828 - 2.935.
    assert 0.457 == pytest.approx(exam.power(200, is_first=True), abs=0.002)
    # Half of the level, z 3.144, and sqrt(0.25 / 400): 4 - 3.144.
    assert 0.804 == pytest.approx(exam.power(400, is_first=False), abs=0.002)
    for is_first in (True, False):
        least = exam.num_needed(is_first=is_first)
        power = [exam.power(n, is_first=is_first) for n in (least - 1, least)]
        assert power[0] < 0.8 <= power[1]


def test_a_file_too_small_for_a_second_duel_is_said_with_what_would_do():
    first, following, advice = Exam(FILE, 204).lines()

    assert first == "first duel: 200 prompts, power 46% at a gain of 10 points"
    assert following == "following duels: none, 4 test prompts are left"
    assert "2,517 valid prompts at prompts.test_fraction 0.3" in advice
    assert advice.endswith("of 204 test prompts, evaluation.num_prompts 96 is the fair share")


def test_enough_prompts_need_no_advice():
    plenty = FILE.evaluation.model_copy(update={"num_prompts": 360})

    lines = [*Exam(FILE.model_copy(update={"evaluation": plenty}), 1200).lines()]

    assert 2 == len(lines)
    assert lines[1].endswith("points, 2 without a prompt twice")


@each_row(
    ("own", "num_prompts", "share"),
    [
        (FILE, 300, 0.3),
        (FILE, 2500, 0.3),
        (FILE, 3100, 0.25),
        (FILE, 5000, 0.2),
        (FILE, 10**6, 0.1),
        (params(), 5000, 0.1),  # duels with a champion have fresh ones
        (params(source="file", path="prompts.txt", test_fraction=0.05), 2500, 0.05),
    ],
)
def test_a_file_is_shared_out_so_that_both_duels_see_the_gain(own, num_prompts, share):
    assert share == own.prompts.test_share(num_prompts)


def test_what_is_kept_for_duels_is_what_they_need():
    exam = Exam(FILE, 900)

    assert FIRST_DUEL == exam.num_needed(is_first=True)
    assert FOLLOWING_DUELS == exam.num_needed(is_first=False)


@pytest.mark.wide
def test_the_gate_itself_sees_as_much():
    exam = Exam(FILE, 900)
    for num_prompts in (200, 400):
        rules = FILE.promotion.model_copy(update={"num_prompts": num_prompts})
        share = promoted_share(
            Attacker(0.6), Attacker(0.5), rules, num_duels=400, against_champion=False
        )
        # binomial(400, p): within three standard errors, and the variance is a twentieth less.
        assert share == pytest.approx(exam.power(num_prompts, is_first=True), abs=0.1)
