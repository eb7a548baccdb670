import pytest

from tasks.expectations.advice import ADVICE
from tasks.expectations.rollout_suite import rollout_suite
from tasks.expectations.suites import prompt_suite
from tasks.params.schema import ValidationConfiguration

pytestmark = pytest.mark.real


def test_each_warning_has_its_advice_and_no_advice_is_of_no_check():
    of_rollouts = rollout_suite(max_failed_fraction=0.1, vocabulary_size=50, are_verdicts=False)
    suites = (prompt_suite(ValidationConfiguration()), of_rollouts)
    levels = {
        each.meta["check"]: each.meta["level"] for suite in suites for each in suite.expectations
    }

    assert {check for check, level in levels.items() if level == "warning"} <= set(ADVICE)
    assert set(ADVICE) <= set(levels)
