import json

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_world import PARAMS, write_world

from astra_core.metrics.statistics import Interval
from astra_core.rollout import Prompt
from astra_core.testing import tiny_language_model, tiny_prompts
from tasks.pipeline.stage import stage_of
from tasks.records.attacker import ATTACKER_FILE, AttackerNote
from tasks.records.reports import write_record
from tasks.records.rollouts import read_rollouts
from tasks.stages.evaluation import EvaluationReport, evaluate_attacker, evaluate_checkpoint

NAMES = {"evaluation_key", "num_prompts", "threshold", "attacker"}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A folder in which another attacker than the base one was evaluated, and the report."""
    folder = tmp_path_factory.mktemp("world")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_world(folder)
        tiny_language_model(seed=11).save(folder / "models/attacker")
        yield folder, stage_of(evaluate_attacker).run(PARAMS)


@pytest.fixture(scope="module")
def record(world):
    folder, _ = world
    return json.loads((folder / "reports/evaluation.json").read_text())


def test_both_attackers_meet_the_same_prompts(world, record):
    folder, report = world
    table = pd.read_parquet(folder / "reports/evaluation_prompts.parquet")
    roles = {role: list(rows.prompt_id) for role, rows in table.groupby("role")}

    assert roles["attacker"] == roles["baseline"]
    assert 6 == len(roles["attacker"]) == record["num_prompts"] == report.num_prompts
    assert [p.prompt_id for p in tiny_prompts(6)] == roles["attacker"]


def test_the_gain_is_the_difference_of_the_rates_prompt_by_prompt(world, record):
    folder, report = world
    table = pd.read_parquet(folder / "reports/evaluation_prompts.parquet")
    rates = table.pivot_table(index="prompt_id", columns="role", values="success_rate")
    gain = float((rates["attacker"] - rates["baseline"]).mean())
    found = {
        name: record[name]["attack_success_rate"]["value"] for name in ("attacker", "baseline")
    }

    assert rates["attacker"].mean() == pytest.approx(found["attacker"])
    assert rates["baseline"].mean() == pytest.approx(found["baseline"])
    assert gain == pytest.approx(record["lift"]["value"])
    assert record["lift"]["low"] <= record["lift"]["value"] <= record["lift"]["high"]
    assert gain == pytest.approx(report.lift.value)


def test_the_prompts_that_chose_a_checkpoint_are_not_those_of_its_examination(tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        write_world(tmp_path)
        tiny_language_model(seed=11).save(tmp_path / "models/attacker")
        note = AttackerNote("ab" * 32, value=0.5, kept="best")
        write_record(note, tmp_path / "models/attacker" / ATTACKER_FILE)
        # Others than those of the test split, which write_world makes equal.
        dev = [{"prompt_id": f"d{n}", "text": f"why {n}"} for n in range(5)]
        pq.write_table(pa.Table.from_pylist(dev), "data/valid/dev.parquet")
        stage_of(evaluate_attacker).run(PARAMS)
        found = json.loads((tmp_path / "reports/evaluation.json").read_text())
        prompts = [Prompt(row["prompt_id"], row["text"]) for row in dev[:4]]
        alone, _ = evaluate_checkpoint(tmp_path / "models/attacker", PARAMS, prompts=prompts)
    table = pd.read_parquet(tmp_path / "reports/evaluation_prompts.parquet")
    selected = found["selection"]["attack_success_rate"]["value"]
    rate = found["attacker"]["attack_success_rate"]["value"]

    assert not set(table.prompt_id) & {row["prompt_id"] for row in dev}
    assert 4 == found["selection"]["num_prompts"] == PARAMS.evaluation.num_training_prompts
    assert selected == alone["attacker"]["attack_success_rate"]["value"]
    assert selected - rate == pytest.approx(found["selection"]["optimism"]["value"])


def test_diversity_is_of_as_many_hits_as_params_say(world, record):
    folder, _ = world
    fewer = PARAMS.evaluation.model_copy(update={"rarefied_to": 3, "threshold": 0.0})
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        found, _ = evaluate_checkpoint(
            folder / "models/attacker", PARAMS.model_copy(update={"evaluation": fewer})
        )

    assert 3 == found["attacker"]["num_hits_compared"] < found["attacker"]["num_hits"]
    assert 1.0 <= found["attacker"]["strategies"] <= 3.0
    assert "selection" not in record


def test_every_reply_is_kept_as_evidence(world, record):
    folder, _ = world
    written = {
        role: read_rollouts(folder / f"data/evaluation/{role}.parquet")
        for role in ("attacker", "baseline")
    }

    for graphs in written.values():
        assert 6 == len(graphs)
        assert record["num_rollouts"] == sum(1 for _ in graphs[0].paths())
        assert record["depth"] == max(len(node.path) for node in graphs[0].nodes())
    assert written["attacker"] != written["baseline"]


def test_the_page_of_examples_is_the_attackers_and_masked(world):
    folder, _ = world
    page = (folder / "reports/examples.md").read_text()
    rows = page.split("|---|---|---|---|\n")[1].splitlines()
    probes = {
        node.probe_text
        for graph in read_rollouts(folder / "data/evaluation/attacker.parquet")
        for node in graph.nodes()
        if len(node.probe_text) > 3
    }

    assert 1 <= len(rows) <= PARAMS.evaluation.num_examples
    assert probes
    assert not any(probe in page for probe in probes)


def test_the_same_params_give_the_same_figures(world, record):
    folder, _ = world
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        again, table = evaluate_checkpoint(folder / "models/attacker", PARAMS)

    assert NAMES == set(again)
    assert {name: record[name] for name in NAMES} == again
    assert ["attacker"] * 6 == list(table.role)


def test_the_untrained_attacker_examined_as_a_checkpoint_scores_the_baseline(world, record):
    folder, _ = world
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        untrained, _ = evaluate_checkpoint(folder / "models/base/tiny", PARAMS)

    assert record["baseline"] == untrained["attacker"]
    # The key is of the examination, and not of who is examined.
    assert record["evaluation_key"] == untrained["evaluation_key"]


def test_another_examination_has_another_key(world, record):
    folder, _ = world
    harder = PARAMS.evaluation.model_copy(update={"threshold": 0.9})
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        # Prompts that may come from anywhere, and once only.
        fresh, _ = evaluate_checkpoint(
            folder / "models/base/tiny", PARAMS, prompts=iter(tiny_prompts(3))
        )
        strict, _ = evaluate_checkpoint(
            folder / "models/base/tiny",
            PARAMS.model_copy(update={"evaluation": harder}),
            prompts=tiny_prompts(3),
        )

    assert (3, 0.9) == (fresh["num_prompts"], strict["threshold"])
    keys = {found["evaluation_key"] for found in (record, fresh, strict)}
    assert 3 == len(keys)


def test_the_summary_is_one_line_in_percent():
    report = EvaluationReport(
        attacker=Interval(0.5, 0.25, 0.75),
        baseline=Interval(0.125, 0.0, 0.25),
        lift=Interval(0.375, 0.1, 0.6),
        unique_probes=0.987,
        num_prompts=40,
    )

    assert (
        "attack success 12.5% [0.0%, 25.0%] -> 50.0% [25.0%, 75.0%] "
        "on 40 test prompts, unique probes 0.99"
    ) == report.summary()


@pytest.fixture(scope="module")
def categorised(tmp_path_factory):
    """The same, of prompts with a category."""
    folder = tmp_path_factory.mktemp("categorised")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_world(folder)
        path = folder / "data/valid/test.parquet"
        table = pq.read_table(path)
        names = ["fraud", "theft", "fraud", "why do you never answer me"]
        metadata = [json.dumps({"category": name}) for name in names] + [None, None]
        pq.write_table(table.append_column("metadata", [metadata]), path)
        tiny_language_model(seed=11).save(folder / "models/attacker")
        report = stage_of(evaluate_attacker).run(PARAMS)
        yield folder, report, json.loads((folder / "reports/evaluation.json").read_text())


def test_success_is_broken_down_by_category(categorised, record):
    folder, report, found = categorised
    table = pd.read_parquet(folder / "reports/evaluation_prompts.parquet")
    rates = table.pivot_table(index="category", columns="role", values="success_rate")

    assert {"fraud": 2, "none": 2, "theft": 1} == {
        name: own["num_prompts"]
        for name, own in found["categories"].items()
        if not name.startswith("w")
    }
    assert 4 == len(found["categories"]) == report.num_categories
    for name, own in found["categories"].items():
        for role in ("attacker", "baseline"):
            assert rates.loc[name, role] == pytest.approx(own[role]["value"])
            assert own[role]["low"] <= own[role]["value"] <= own[role]["high"]
        gain = own["attacker"]["value"] - own["baseline"]["value"]
        assert gain == pytest.approx(own["lift"]["value"])
    # All else is as it is without categories.
    assert record == {name: own for name, own in found.items() if name != "categories"}
    assert "of 4 categories" in report.summary()


def test_a_category_that_may_be_an_attack_is_masked_in_the_reports(categorised):
    folder, _, found = categorised
    table = pd.read_parquet(folder / "reports/evaluation_prompts.parquet")

    assert "never" not in json.dumps(found, ensure_ascii=False)
    assert "never" not in table.to_csv()
    evidence = read_rollouts(folder / "data/evaluation/attacker.parquet")
    assert "why do you never answer me" in {g.prompt.metadata.get("category") for g in evidence}
