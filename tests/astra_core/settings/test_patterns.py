import pytest
from each_row import each_row

from astra_core.errors import ConfigurationError
from astra_core.settings.patterns import check_pattern, occurs

ENDLESS = r"^(a|aa)+$"


@each_row("pattern", ["(", "[", "*", "(?P<a>", "a{2,1}", r"\1"])
def test_what_is_no_expression_is_refused_with_its_key(pattern):
    with pytest.raises(ValueError, match="when must be a regular expression, got"):
        check_pattern("when", pattern)


def test_an_expression_is_found_in_the_text():
    check_pattern("when", ENDLESS)

    assert occurs("d.g", "my dog", where="when")
    assert not occurs("^dog", "my dog", where="when")


def test_an_expression_that_never_ends_is_given_up():
    with pytest.raises(ConfigurationError, match=r"when must be found or missed within 0.05 s"):
        occurs(ENDLESS, "a" * 60 + "b", where="when", limit_s=0.05)
