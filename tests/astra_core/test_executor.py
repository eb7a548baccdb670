from shard_sums import bar_into

from astra_core.executor import LocalExecutor, shown_by
from astra_parts.testing import check_executor
from astra_parts.testing.contracts.executor import ScaledNumbers


def run(folder, count):
    executor = LocalExecutor(LocalExecutor.Options())
    return executor.run(ScaledNumbers(folder), list(range(count)), title="rollouts")


def test_a_bar_is_drawn_where_one_is_offered_and_shards_are_several(tmp_path):
    told = []
    with shown_by(bar_into(told)):
        run(tmp_path, 1)
        assert [] == told
        run(tmp_path, 3)
    run(tmp_path, 3)

    assert [("rollouts", 3), 1, 1, 1, "end"] == told


def test_the_local_one_keeps_the_contract():
    check_executor("local")
