import importlib.util
import os
import subprocess
import sys
import time
from contextlib import contextmanager, suppress

import psutil
import pytest
from closed_executors import close_executors
from shard_sums import Sums

from astra_core.config import (
    Choice,
    GenerationConfiguration,
    MachineConfiguration,
    RolloutsConfiguration,
    SystemConfiguration,
)
from astra_core.errors import ConfigurationError, DataError
from astra_core.executor import shown_by
from astra_core.registry import find
from astra_core.sampler import rolled_out
from astra_parts.assembly import ModelFolders, build_sampler, load_system
from astra_parts.executors.on_ray import LOOPBACK, SETTINGS, RayExecutor
from astra_parts.testing import check_executor, tiny_language_model, tiny_prompts
from benchmarks.ray_nodes import Nodes

pytestmark = pytest.mark.filterwarnings("default")
SHORT = GenerationConfiguration(max_new_tokens=6)


def test_no_usage_is_reported_and_ray_stays_on_this_machine():
    assert "0" == SETTINGS["RAY_USAGE_STATS_ENABLED"]
    assert "0" == SETTINGS["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"]
    assert "127.0.0.1" == LOOPBACK


def test_without_a_cluster_there_is_work_for_none():
    executor = RayExecutor(RayExecutor.Options())

    assert [] == executor.run(Sums, [])
    executor.close()


def test_an_unknown_option_is_refused():
    with pytest.raises(ConfigurationError, match="addres"):
        find("executor", Choice(name="ray", options={"addres": "a:1"}))


@pytest.fixture
def nodes():
    """Two real Ray nodes of one core each."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("needs the extra ray")
    with Nodes() as found:
        yield found


def executor_on(nodes, **options):
    settings = {"num_workers": 2, "straggler_factor": 50.0, "address": nodes.address, **options}
    return RayExecutor(RayExecutor.Options(**settings))


def addresses(processes):
    """Where they listen."""
    found = set()
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            for own in process.net_connections("inet"):
                if own.status == psutil.CONN_LISTEN:
                    found.add(own.laddr.ip.removeprefix("::ffff:"))
    return found


@pytest.mark.real
def test_the_contract_is_kept_and_nothing_listens_beyond_this_machine(nodes):
    check_executor("ray", num_workers=1, address=nodes.address)

    assert {LOOPBACK} == addresses(nodes.processes())


@pytest.mark.wide
@pytest.mark.parametrize("is_joined", [False, True], ids=["started", "joined"])
def test_where_ray_was_imported_before_it_stays_on_this_machine_too(nodes, is_joined):
    address = nodes.address if is_joined else None
    code = f"""
import ray
from astra_parts.testing import check_executor
check_executor("ray", num_workers=1, address={address!r})
"""
    others = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    command = [sys.executable, "-c", code]
    process = subprocess.Popen(command, env=others)
    listening = set()
    while process.poll() is None:
        listening |= addresses(psutil.Process(process.pid).children(recursive=True))
        time.sleep(0.2)

    assert 0 == process.returncode
    assert listening <= {LOOPBACK}
    assert is_joined or listening


@pytest.mark.wide
def test_a_node_that_is_killed_costs_its_shards_alone(nodes, tmp_path, record_property):
    executor = executor_on(nodes)
    work = Sums(tmp_path)
    # Both actors live before one dies.
    executor.run(work, [(number, "pause") for number in range(8)])
    done, started = [], time.monotonic()

    def advance(count):
        done.append(count)
        if len(done) == 4:
            nodes.kill_one()

    shards = [(number, "pause") for number in range(16)]
    found = executor.results(work, shards, weights=None, advance=advance)
    record_property("seconds", time.monotonic() - started)
    with pytest.raises(DataError, match="must be good"):
        executor.run(work, [(0, "fail")])
    # A worker that dies alone is restarted where it was, and told its work again.
    again = executor.run(work, [(20, ""), (21, "die"), (22, "")])
    executor.close()

    assert list(range(16)) == [number for number, _ in found]
    assert 16 == len(done)
    assert [20, 21, 22] == [number for number, _ in again]


@pytest.mark.wide
def test_rollouts_are_those_of_one_process_though_a_node_is_killed(nodes, tmp_path):
    tiny_language_model(seed=1).save(tmp_path / "attacker")
    folders = ModelFolders(*[tmp_path / "attacker"] * 3)
    two = {"num_workers": 2, "address": nodes.address, "straggler_factor": 50.0}

    def rolled(executor):
        system = load_system(
            SystemConfiguration(max_context_tokens=64, probe=SHORT, response=SHORT),
            folders,
            machine=MachineConfiguration(prompts_per_shard=1),
            executor=executor,
        )
        prompts = tiny_prompts(24)
        parts = {"system": system, "prompts": prompts, "seed": 3}
        sampler = build_sampler(RolloutsConfiguration(), Choice(name="adversarial"), **parts)
        return rolled_out(sampler, prompts, iteration=0)

    done = []

    @contextmanager
    def bar(*_):
        yield lambda count: done.append(count) or (len(done) == 6 and nodes.kill_one())

    here = rolled(Choice(name="local"))
    with shown_by(bar):
        there = rolled(Choice(name="ray", options=two))
    close_executors()

    assert 24 == len(done)
    assert here == there
