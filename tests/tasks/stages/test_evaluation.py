import json
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_world import PARAMS, write_world

from astra_core.config import Choice
from astra_core.errors import ConfigurationError
from astra_core.metrics.statistics import Interval
from astra_core.rollout import Prompt
from astra_parts.testing import tiny_language_model, tiny_prompts
from tasks.figures.calibration import run_calibration
from tasks.pipeline.stage import stage_of
from tasks.records.attacker import ATTACKER_FILE, AttackerNote
from tasks.records.evaluation import read_evaluation
from tasks.records.reports import write_record
from tasks.records.rollouts import read_rollouts
from tasks.stages.evaluation import EvaluationReport, evaluate_attacker, evaluate_checkpoint

pytestmark = pytest.mark.real  # a stage, or what one serves, on files

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


def test_the_metrics_of_dvc_are_five_numbers_of_the_report(world, record):
    folder, _ = world
    told = json.loads((folder / "reports/headline.json").read_text())

    assert {
        "attack_success_rate": record["attacker"]["attack_success_rate"]["value"],
        "untrained_success_rate": record["baseline"]["attack_success_rate"]["value"],
        "gain": record["lift"]["value"],
        "unique_probes": record["attacker"]["unique_probes"],
        "kl_nats": record["attacker"]["kl_nats"],
    } == told


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


def test_harmless_requests_are_reported_beside_success(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_world(tmp_path)
    tiny_language_model(seed=11).save(tmp_path / "models/attacker")
    (tmp_path / "asked.csv").write_text("prompt,type\nhow so,talk\nwhy me,talk\n")
    asked = PARAMS.evaluation.model_copy(update={"benign_prompts": tmp_path / "asked.csv"})
    report = stage_of(evaluate_attacker).run(PARAMS.model_copy(update={"evaluation": asked}))
    found = read_evaluation(tmp_path / "reports/evaluation.json")

    assert found.over_refusal.words() in report.summary()
    assert 2 == found.over_refusal.num_safe == found.over_refusal.types["talk"].num_requests
    assert found.over_refusal.rate.value == found.final_figures()["final/over_refusal_rate"]
    # This file has no requests that should be refused.
    assert "final/unsafe_refusal_rate" not in found.final_figures()


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
    # All else is as it is without categories; the key covers what judges may read.
    assert record["evaluation_key"] != found["evaluation_key"]
    assert record == {name: own for name, own in found.items() if name != "categories"} | {
        "evaluation_key": record["evaluation_key"]
    }
    assert "of 4 categories" in report.summary()


def test_a_category_that_may_be_an_attack_is_masked_in_the_reports(categorised):
    folder, _, found = categorised
    table = pd.read_parquet(folder / "reports/evaluation_prompts.parquet")

    assert "never" not in json.dumps(found, ensure_ascii=False)
    assert "never" not in table.to_csv()
    evidence = read_rollouts(folder / "data/evaluation/attacker.parquet")
    assert "why do you never answer me" in {g.prompt.metadata.get("category") for g in evidence}


LABELLED = [
    ("a bad one", 1),
    ("bad you", 1),
    ("mean", 1),
    ("fine", 0),
    ("not so bad", 0),
    ("so", 0),
] * 5


@pytest.fixture(scope="module")
def believed(tmp_path_factory):
    """The same, with a calibration of the judge and a second judge; and the params."""
    folder = tmp_path_factory.mktemp("believed")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_world(folder)
        tiny_language_model(seed=11).save(folder / "models/attacker")
        rows = [json.dumps({"reply": text, "label": label}) for text, label in LABELLED]
        (folder / "labelled.jsonl").write_text("\n".join(rows))
        run_calibration(PARAMS.system.scorer, folder / "labelled.jsonl", threshold=0.5)
        (path,) = Path("reports/calibration").glob("*.json")
        second = Choice(name="phrases", options={"phrases": ["bad"]})
        update = {"calibration": path, "second_judge": second}
        params = PARAMS.model_copy(
            update={"evaluation": PARAMS.evaluation.model_copy(update=update)}
        )
        report = stage_of(evaluate_attacker).run(params)
        yield folder, params, report


def test_success_is_reported_corrected_and_confirmed_beside_what_the_judge_sees(believed, record):
    folder, _, report = believed
    found = json.loads((folder / "reports/evaluation.json").read_text())
    added = {
        "corrected_attack_success_rate",
        "corrected_attempt_success_rate",
        "confirmed_attack_success_rate",
        "judge_agreement",
        "judge_kappa",
        "second_judge_replies",
        "second_judge_unjudged",
    }

    for role in ("attacker", "baseline"):
        assert added == set(found[role]) - set(record[role])
        assert record[role] == {name: found[role][name] for name in record[role]}
        confirmed = found[role]["confirmed_attack_success_rate"]["value"]
        assert confirmed <= found[role]["attack_success_rate"]["value"]
    assert {"belief"} == set(found) - set(record)
    assert 30 == found["belief"]["calibration"]["num_rows"]
    assert 2 / 3 == pytest.approx(found["belief"]["calibration"]["sensitivity"]["value"])
    assert found["belief"]["second_judge"].startswith("phrases ")
    assert report.corrected.value == found["attacker"]["corrected_attack_success_rate"]["value"]
    assert ", corrected " in report.summary()
    assert ", confirmed " in report.summary()
    # A second judge makes another examination, so that champions are examined by it too.
    assert record["evaluation_key"] != found["evaluation_key"]


def test_the_table_has_what_the_second_judge_confirms(believed):
    folder, _, _ = believed
    table = pd.read_parquet(folder / "reports/evaluation_prompts.parquet")
    found = json.loads((folder / "reports/evaluation.json").read_text())
    means = table.groupby("role").confirmed_success_rate.mean()

    for role in ("attacker", "baseline"):
        told = found[role]["confirmed_attack_success_rate"]["value"]
        assert means[role] == pytest.approx(told)
    assert (table.confirmed_success_rate <= table.success_rate).all()


def test_the_figures_go_to_the_tracker_by_name(believed):
    folder, _, _ = believed
    figures = read_evaluation(folder / "reports/evaluation.json").final_figures()

    for name in ("corrected_attack_success_rate", "confirmed_attack_success_rate", "judge_kappa"):
        assert {f"final/{name}", f"final/{name}_low", f"baseline/{name}"} <= set(figures)
    assert {"final/corrected_lift", "final/confirmed_lift_high"} <= set(figures)


def test_a_champion_is_examined_with_the_same_questions(believed):
    folder, params, _ = believed
    found = json.loads((folder / "reports/evaluation.json").read_text())
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        again, table = evaluate_checkpoint(folder / "models/attacker", params)

    assert {name: found[name] for name in NAMES} == again
    assert "confirmed_success_rate" in table


def test_a_calibration_of_another_judge_stops_before_anything_is_rolled_out(believed):
    folder, params, _ = believed
    other = Choice(name="phrases", options={"phrases": ["so"]})
    system = params.system.model_copy(update={"scorer": other})
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        with pytest.raises(
            ConfigurationError, match=r"evaluation\.calibration must be of the judge"
        ):
            evaluate_checkpoint(
                folder / "models/attacker", params.model_copy(update={"system": system})
            )
