from registry_project import write_checkpoint

from tasks.serving.probes import write_probes


def test_a_checkpoint_writes_whatever_lies_beside_it(tmp_path):
    folder = write_checkpoint(tmp_path / "checkpoint")
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'touch ran'\ntR.")
    found = write_probes(folder, {"max_context_tokens": 16}, ["you are", "why"], max_new_tokens=3)

    assert [str, str] == [type(probe) for probe in found]
    assert all(len(probe.split()) <= 3 for probe in found)
