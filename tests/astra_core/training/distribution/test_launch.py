import pytest

from astra_core.errors import ConfigurationError
from astra_core.training.distribution.launch import (
    check_launch,
    local_rank,
    local_world_size,
    own_rank,
    world_size,
)

NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """Sets variables, of which none was set before."""
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)

    def set_all(**variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return set_all


def test_a_process_that_nobody_counts_is_alone():
    assert (0, None, 0, 1) == (own_rank(), world_size(), local_rank(), local_world_size())
    check_launch()


def test_what_torchrun_sets_is_read(environment):
    group = {"WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    environment(RANK="3", LOCAL_RANK="1", LOCAL_WORLD_SIZE="2", **group)

    assert (3, 4, 1, 2) == (own_rank(), world_size(), local_rank(), local_world_size())
    check_launch()


def test_an_empty_variable_is_as_one_that_is_not_set(environment):
    environment(**dict.fromkeys(NAMES, ""))

    assert (0, None) == (own_rank(), world_size())
    check_launch()


@pytest.mark.parametrize("value", ["two", "-1", "0x2", "1.0", "1e3", "1_0", "٣", "9" * 5000])
@pytest.mark.parametrize("name", [name for name in NAMES if name != "MASTER_ADDR"])
def test_a_variable_that_is_no_number_is_one_line(environment, name, value):
    environment(**{name: value})

    with pytest.raises(ConfigurationError, match=f"^{name} must be a number from") as refusal:
        check_launch()
    assert 300 > len(str(refusal.value))


def test_a_rank_is_below_the_number_of_processes(environment):
    environment(RANK="2", WORLD_SIZE="2")

    with pytest.raises(ConfigurationError, match="RANK must be a number from 0 to 1, got '2'"):
        own_rank()


@pytest.mark.parametrize("missing", ["RANK", "MASTER_ADDR", "MASTER_PORT"])
def test_several_processes_must_be_able_to_find_each_other(environment, missing):
    whole = {"RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    environment(WORLD_SIZE="2", **{name: whole[name] for name in whole if name != missing})

    with pytest.raises(ConfigurationError, match=f"{missing} must be set where WORLD_SIZE is 2"):
        check_launch()
