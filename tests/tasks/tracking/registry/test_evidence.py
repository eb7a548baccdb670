import pandas as pd
import pytest
from each_row import each_row
from registry_project import EVALUATION_KEY, examined, prompt_table

from astra_core.config import AttackerConfiguration, GenerationConfiguration, SystemConfiguration
from astra_core.errors import DataError
from astra_core.files import write_json
from astra_core.settings.attacker import DEFAULT_INSTRUCTION
from tasks.records.training import BestMeasured, Measured, TrainingRecord
from tasks.tracking.registry.evidence import Evidence, evaluation_folder, read_package, read_table


@pytest.fixture
def attacker(tmp_path):
    folder = tmp_path / "attacker"
    folder.mkdir()
    write_json({"digest": "c0" * 32}, folder / "astra.json")
    return folder


def trained(run_key="5f" * 32):
    return TrainingRecord(
        run_key=run_key,
        checkpoint_digest="c0" * 32,
        training_steps=2,
        optimizer_steps=2,
        engine="plain",
        training_precision="fp32",
        system_precision="fp32",
        num_nonfinite=0,
        num_empty_experiences=0,
        stopped_because="all steps done",
        first=Measured("eval/attack_success_rate", 0.2),
        best=BestMeasured("eval/attack_success_rate", 0.6, 2),
        evaluations=(),
    )


def evidence(attacker, **changes):
    found = {
        "params": {},
        "package": read_package(attacker, SystemConfiguration()),
        "evaluation": examined(),
        "training": trained(),
        "target_digest": "7a" * 32,
        "steps": pd.DataFrame(),
        "table": pd.DataFrame(),
        "files": {},
        "datasets": {},
    }
    return Evidence(**found | changes)


def test_another_package_or_examination_is_another_version(attacker):
    key = evidence(attacker).key
    hotter = SystemConfiguration(probe=GenerationConfiguration(temperature=2.0))
    others = [
        evidence(attacker, package=read_package(attacker, hotter)),
        evidence(attacker, evaluation=examined(lift=0.3)),
    ]

    assert key == evidence(attacker).key
    assert 3 == len({key, *(other.key for other in others)})


def test_where_it_was_trained_makes_no_other_version(attacker):
    other = evidence(attacker, params={"seed": 1}, training=trained(run_key="00" * 32))

    assert evidence(attacker).key == other.key


def test_the_files_of_an_examination_lie_under_its_key(attacker):
    assert f"evaluation/{'e7' * 8}" == evaluation_folder(EVALUATION_KEY)
    assert evaluation_folder(EVALUATION_KEY) == evidence(attacker).folder


def test_a_package_is_sampled_as_the_system_samples_probes(attacker):
    system = SystemConfiguration(
        separator=" | ",
        max_context_tokens=48,
        probe=GenerationConfiguration(max_new_tokens=5, temperature=0.5, top_k=7),
    )
    package = read_package(attacker, system)

    assert (attacker, "c0" * 32) == (package.checkpoint, package.digest)
    wanted = {"separator": " | ", "max_context_tokens": 48, "max_new_tokens": 5}
    wanted |= {"temperature": 0.5, "top_k": 7}
    assert wanted == {name: package.config[name] for name in wanted}


def test_a_package_says_how_a_templated_attacker_was_trained_to_read(attacker):
    told = AttackerConfiguration(format="template", think_tags=("[", "]"))
    (attacker / "attacker.json").write_text(told.model_dump_json(), "utf-8")
    other = SystemConfiguration(attacker=AttackerConfiguration(format="auto"))
    config = read_package(attacker, other).config["attacker"]

    assert ("template", ["[", "]"]) == (config["format"], config["think_tags"])
    assert DEFAULT_INSTRUCTION == config["instruction"]
    (attacker / "attacker.json").unlink()
    assert "attacker" not in read_package(attacker, other).config


def test_a_checkpoint_without_a_record_is_refused(attacker):
    (attacker / "astra.json").unlink()

    with pytest.raises(DataError, match=r"astra\.json must be a JSON report, got FileNotFound"):
        read_package(attacker, SystemConfiguration())


@each_row("name", ["table.csv", "table.parquet"])
def test_a_table_is_read_by_its_ending(tmp_path, name):
    table = prompt_table(rate=0.6, baseline=0.2)
    path = tmp_path / name
    table.to_csv(path, index=False) if path.suffix == ".csv" else table.to_parquet(path)

    pd.testing.assert_frame_equal(table, read_table(path))


@each_row("name", ["table.csv", "table.parquet"])
@each_row("content", [None, b"", b"\xff\xfe\x00"])
def test_a_table_that_is_none_is_one_line(tmp_path, name, content):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(DataError, match=rf"{name} must be a table, got \w+; run"):
        read_table(path)
