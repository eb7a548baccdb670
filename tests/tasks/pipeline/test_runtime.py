import pytest
import torch
from small_world import PARAMS, write_world

from astra_core.engine import memory
from astra_core.errors import ConfigurationError
from tasks.params.schema import MachineConfiguration
from tasks.pipeline.runtime import load_system


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """What the models stage leaves."""
    folder = tmp_path_factory.mktemp("world")
    write_world(folder)
    return folder / "models" / "base"


@pytest.fixture(autouse=True)
def _as_before():
    threads, is_deterministic = (
        torch.get_num_threads(),
        torch.are_deterministic_algorithms_enabled(),
    )
    yield
    torch.utils.deterministic.fill_uninitialized_memory = True
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(is_deterministic)


def loaded(base, **machine):
    return load_system(PARAMS.system, base, machine=MachineConfiguration(**machine))


def test_models_are_on_the_cpu_on_deterministic_kernels_by_default(base):
    system = loaded(base)

    assert {"cpu"} == {m.device.type for m in (system.attacker, system.target, system.reference)}
    assert torch.are_deterministic_algorithms_enabled()


def test_no_time_is_spent_on_memory_that_is_written_over(base):
    loaded(base)

    assert not torch.utils.deterministic.fill_uninitialized_memory


def test_the_number_of_threads_is_the_one_asked_for(base):
    loaded(base, num_threads=2)
    assert 2 == torch.get_num_threads()

    loaded(base, num_threads=0)
    assert 1 == torch.get_num_threads()


def test_the_process_keeps_the_memory_that_it_frees(base, monkeypatch):
    asked = []
    monkeypatch.setattr(memory, "keep_freed_memory", lambda: asked.append("keep"))
    loaded(base)

    assert ["keep"] == asked


def test_cuda_without_a_device_is_refused_before_any_weight_loads(tmp_path, base, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    (tmp_path / "manifest.json").write_text((base / "manifest.json").read_text())

    # The manifest names a folder that is not there, so that reading it would be the error.
    with pytest.raises(
        ConfigurationError, match=r"machine\.device must be 'cpu' or 'auto'"
    ) as told:
        loaded(tmp_path, device="cuda")
    assert "\n" not in str(told.value)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_weights_are_sent_to_the_device_that_is_asked_for(base, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)

    for device in ("cuda", "auto"):
        with pytest.raises((AssertionError, RuntimeError), match=r"CUDA|NVIDIA"):
            loaded(base, device=device)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("device", ["cuda", "auto"])
def test_models_are_on_the_cuda_device(base, device):
    system = loaded(base, device=device)

    assert {"cuda"} == {m.device.type for m in (system.attacker, system.target, system.reference)}
