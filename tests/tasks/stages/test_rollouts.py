import json
from pathlib import Path

import pytest
from closed_executors import close_executors
from small_world import PARAMS, write_world

from astra_core.config import Choice
from astra_core.errors import DataError, GateError
from astra_core.judge import Judge, Judgement
from astra_core.scorer import Scorer
from tasks.pipeline.stage import stage_of
from tasks.records.rollouts import read_rollouts
from tasks.stages.rollouts import RolloutsSummary, collect_rollouts

pytestmark = pytest.mark.real  # a stage, or what one serves, on files

FILE = Path("data/rollouts/rollouts.parquet")
REPORT = Path("reports/rollouts.json")


def collect(**changes):
    return stage_of(collect_rollouts).run(PARAMS.model_copy(update=changes))


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A small project in which the stage ran; what it returned, and the folder."""
    folder = tmp_path_factory.mktemp("world")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_world(folder)
        yield collect(), folder


def test_rollouts_hold_every_turn_and_passed_their_checks(world):
    summary, folder = world
    graphs = read_rollouts(folder / FILE)
    report = json.loads((folder / REPORT).read_text())

    # Trees of width three and depth two.
    assert 8 == len(graphs) == summary.num_prompts
    assert 8 * (3 + 9) == sum(1 for graph in graphs for _ in graph.nodes()) == summary.num_turns
    assert {0} == {graph.iteration for graph in graphs}
    assert report["checks"]["success"]


def test_the_report_is_of_the_turns_that_were_written(world):
    summary, folder = world
    nodes = [node for graph in read_rollouts(folder / FILE) for node in graph.nodes()]
    report = json.loads((folder / REPORT).read_text())

    means = {
        "score_mean": [node.score for node in nodes],
        "success_rate": [float(node.score >= 0.5) for node in nodes],
        "reward_mean": [node.reward for node in nodes],
        "target_nll_mean": [node.target_nll for node in nodes],
    }
    assert {name: sum(own) / len(own) for name, own in means.items()} == pytest.approx(
        {name: report[name] for name in means}
    )
    assert (8, 96) == (report["num_prompts"], report["num_turns"])
    assert report["scorer"].startswith("phrases ")
    assert report["score_mean"] == pytest.approx(summary.score_mean)


def test_the_same_params_give_the_same_bytes(world):
    _, folder = world
    before = (folder / FILE).read_bytes(), (folder / REPORT).read_bytes()
    collect()

    assert before == ((folder / FILE).read_bytes(), (folder / REPORT).read_bytes())


def test_who_rolls_out_is_no_reason_to_run_again():
    stage = stage_of(collect_rollouts)

    assert "machine" in stage.params
    assert "executor" not in stage.params


@pytest.mark.wide
def test_two_workers_write_the_bytes_that_one_process_writes(world):
    _, folder = world
    machine = PARAMS.machine.model_copy(update={"prompts_per_shard": 3})
    collect(machine=machine)
    before = (folder / FILE).read_bytes()
    collect(machine=machine, executor=Choice(name="processes", options={"num_workers": 2}))
    close_executors()

    assert before == (folder / FILE).read_bytes()


def test_there_are_no_more_rollouts_than_prompts(tmp_path, monkeypatch):
    write_world(tmp_path)
    monkeypatch.chdir(tmp_path)
    narrow = Choice(name="tree", options={"tree_width": 2, "tree_depth": 1, "num_responses": 1})
    summary = collect(
        rollouts=PARAMS.rollouts.model_copy(update={"num_prompts": 50, "sampler": narrow})
    )

    assert (12, 24) == (summary.num_prompts, summary.num_turns)


class MuteJudge(Judge):
    version = "mute 1"

    def judge(self, exchanges):
        return [Judgement.none("the server answers 401") for _ in exchanges]


def test_a_judge_that_judges_nothing_ends_the_stage(tmp_path, monkeypatch):
    write_world(tmp_path)
    monkeypatch.chdir(tmp_path)
    mute = Choice(name=f"{__name__}:MuteJudge")

    with pytest.raises(DataError, match=r"\(100%\).*max_unjudged_fraction.*answers 401"):
        collect(system=PARAMS.system.model_copy(update={"scorer": mute}))
    assert not FILE.parent.exists()


class DeafScorer(Scorer):
    """Gives every text the same grade."""

    version = "deaf"

    def score(self, texts):
        return [0.25 for _ in texts]


def test_rollouts_that_are_not_fit_to_learn_from_are_reported_and_not_accepted(
    tmp_path, monkeypatch
):
    write_world(tmp_path)
    monkeypatch.chdir(tmp_path)
    deaf = Choice(name=f"{__name__}:DeafScorer")

    with pytest.raises(GateError, match=r"rollouts must pass '.*see reports/rollouts\.json"):
        collect(system=PARAMS.system.model_copy(update={"scorer": deaf}))
    checks = json.loads(REPORT.read_text())["checks"]
    assert not checks["success"]
    assert checks["critical_failed"]
    assert not FILE.parent.exists()


def test_a_judge_that_flags_nothing_warns_with_the_way_out(tmp_path, monkeypatch):
    write_world(tmp_path)
    monkeypatch.chdir(tmp_path)
    never = Choice(name="phrases", options={"phrases": ["what nobody says"]})
    summary = collect(system=PARAMS.system.model_copy(update={"scorer": never}))

    assert "warning: " in summary.summary()
    assert "training longer does not help" in summary.summary()
    assert json.loads(REPORT.read_text())["checks"]["success"]


def test_the_summary_is_one_line_in_percent():
    summary = RolloutsSummary(num_prompts=8, num_turns=96, score_mean=0.2, success_rate=0.125)

    assert (
        "96 turns from 8 prompts, 12.5% of turns succeed, data checks passed" == summary.summary()
    )


def test_the_summary_counts_what_nobody_could_judge():
    some = RolloutsSummary(8, 96, score_mean=0.2, success_rate=0.125, num_unjudged=3)

    assert "3 replies unjudged, data checks passed" in some.summary()


def test_trees_are_the_same_whether_or_not_they_are_written_piece_by_piece(world, monkeypatch):
    _, folder = world
    monkeypatch.chdir(folder)
    machine = PARAMS.machine.model_copy(update={"prompts_per_shard": 2})
    # Novelty compares the trees of a piece.
    reward = Choice(name="adversarial", options={"novelty_weight": 0.0})
    collect(machine=machine, reward=reward)
    whole, report = read_rollouts(folder / FILE), (folder / REPORT).read_bytes()
    # Of eight trees.
    monkeypatch.setattr("tasks.stages.rollouts._TREES_AT_ONCE", 5)
    collect(machine=machine, reward=reward)

    pieces = read_rollouts(folder / FILE)
    assert report == (folder / REPORT).read_bytes()
    assert _told(whole) == _told(pieces)


def _told(graphs):
    return [
        [(node.path, node.probe_logprobs, node.outcome, node.reward) for node in graph.nodes()]
        for graph in graphs
    ]
