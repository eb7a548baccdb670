import json

import pytest
from each_row import each_row
from tiny_benchmark import SMALL

from benchmarks.measures import method
from benchmarks.measures.method import ALL_WORLDS, Cell, main, table
from benchmarks.worlds import PROMPTS, make_world

FIGURE = {"value": 0.3, "low": 0.2, "high": 0.4}
SIDE = {
    "attack_success_rate": FIGURE,
    "clean_attack_success_rate": FIGURE,
    "unique_attacks": 70.0,
    "strategies_found": 33.0,
    "strategies_repeated": 21.0,
    "strategies": 20.0,
    "num_hits_compared": 50,
    "probe_toxicity_rate": 0.25,
    "kl_nats": 7.0,
    "probe_perplexity": 8.0,
}
FOUND = {
    "evaluation": {
        "baseline": SIDE,
        "attacker": {**SIDE, "probe_perplexity": 12.0},
        "lift": FIGURE,
    },
    "moves": [{"nats": 2.0}, {"nats": 3.5}],
    "seconds": 61.0,
}


def test_a_finished_cell_is_not_run_again(tmp_path, monkeypatch, capsys):
    ran = []

    def run_cell(cell, *_):
        ran.append(cell)
        return FOUND

    monkeypatch.setattr(method, "run_cell", run_cell)
    arguments = ["--worlds", "mirror", "--algorithms", "dpo", "--cache", str(tmp_path)]

    main([*arguments, "--seeds", "1", "2", "--cells", "1"])
    assert "1 of 2 cells" in capsys.readouterr().out
    main([*arguments, "--seeds", "1", "2"])

    assert [Cell("mirror", "dpo", 1), Cell("mirror", "dpo", 2)] == ran
    assert "2 of 2 cells" in capsys.readouterr().out
    main([*arguments, "--seeds", "1", "--set", "training.lr=1e-5"])

    assert Cell("mirror", "dpo", 1, changes=("training.lr=1e-5",)) == ran[-1]
    assert "1 of 1 cells" in capsys.readouterr().out
    main([*arguments, "--seeds", "1", "--exam", "evaluation.num_responses=5"])

    assert Cell("mirror", "dpo", 1, exam=("evaluation.num_responses=5",)) == ran[-1]
    assert "1 of 1 cells" in capsys.readouterr().out


def test_the_table_has_intervals_and_the_farthest_movement(tmp_path):
    cell = Cell("mirror", "dpo", 1)
    cell.file(tmp_path).write_text(json.dumps(FOUND))

    row = table([cell], tmp_path).splitlines()[2]

    expected = (
        "mirror | dpo | default | 1 | 30.0 [20.0, 40.0] | 30.0 [20.0, 40.0] | 30.0 [20.0, 40.0]"
    )
    assert expected in row
    assert (
        "| 70 | 70 | 33 | 33 | 21 | 21 | 20.0 in 50 | 20.0 in 50 | 25.0 | 7.0 | 1.50 | 3.5 | 61 |"
        in row
    )


def test_seeds_are_pooled_with_student_s_interval_over_their_gains(tmp_path):
    cells = [Cell("mirror", "dpo", seed) for seed in (1, 2)]
    for cell, gain in zip(cells, (0.2, 0.4), strict=True):
        lift = {"value": gain, "low": gain - 0.1, "high": gain + 0.1}
        found = {**FOUND, "evaluation": {**FOUND["evaluation"], "lift": lift}}
        cell.file(tmp_path).write_text(json.dumps(found))

    row = table(cells, tmp_path, is_pooled=True).splitlines()[2]

    # The means' standard error is 10 points; Student's quantile for two seeds is 12.706.
    assert "mirror | dpo | default | 2 | 30.0 | 30.0 | 30.0 [-97.1, 157.1] | 10.0 |" in row
    assert "| 20.0 | 20.0 | 25.0 | 7.0 | 1.50 |" in row


@each_row("is_pooled", [False, True])
def test_a_figure_that_a_cell_lacks_is_a_dash(is_pooled, tmp_path):
    # Without a hit there are no strategies among hits; older cells have fewer figures.
    older = {**SIDE, "strategies": None, "num_hits_compared": 0}
    del older["unique_attacks"]
    cell = Cell("mirror", "dpo", 1)
    found = {**FOUND, "evaluation": {**FOUND["evaluation"], "attacker": older}}
    cell.file(tmp_path).write_text(json.dumps(found))

    row = table([cell], tmp_path, is_pooled=is_pooled).splitlines()[2]

    none = "- in 0"
    expected = ("70.0 | -", "20.0 | -") if is_pooled else ("70 | -", f"20.0 in 50 | {none}")
    assert all(f"| {words} |" in row for words in expected)


@each_row("world", ALL_WORLDS)
def test_a_cell_runs_on_one_thread_in_its_world(world, tmp_path, monkeypatch):
    monkeypatch.setattr(method, "make_world", lambda _, folder: folder.mkdir(parents=True))
    found = list(method._settings(Cell(world, "grpo", 3), tmp_path))

    assert {"seed=3", "machine.num_threads=1", "training.algorithm.name=grpo"} <= {*found}
    assert (world != "embedded") == any(f"worlds/{world}/model" in text for text in found)


def test_a_folder_is_a_world_and_a_recipe_a_row_of_its_own(tmp_path, monkeypatch, capsys):
    forum = tmp_path / "my/forum"
    forum.mkdir(parents=True)
    (forum / PROMPTS).write_text("{}\n")
    monkeypatch.setattr(method, "run_cell", lambda *_: FOUND)
    seeds = ["--seeds", "1", "--algorithms", "dpo", "--cache", str(tmp_path)]

    main(["--worlds", str(forum), "--recipes", "default", "untuned", *seeds])

    printed = capsys.readouterr().out
    assert "| forum | dpo | default | 1 |" in printed
    assert "| forum | dpo | untuned | 1 |" in printed
    found = list(method._settings(Cell(str(forum), "dpo", 1), tmp_path))
    assert f"models.target.path={forum / 'model'}" in found


def test_a_folder_without_prompts_is_one_line(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["--worlds", str(tmp_path)])

    assert "or a folder with prompts.jsonl, got " in capsys.readouterr().err


@pytest.mark.wide
def test_a_small_cell_is_run_by_the_stages(tmp_path, capsys):
    make_world("keyword", tmp_path / "worlds/keyword", num_dialogues=32, num_prompts=500)
    arguments = ["--worlds", "keyword", "--algorithms", "dpo", "--seeds", "1"]
    arguments += ["--recipes", "untuned"]

    # Whatever is said succeeds there.
    exam = ["--exam", "evaluation.threshold=0.0"]

    assert 0 == main([*arguments, "--cache", str(tmp_path), "--set", *SMALL, *exam])
    assert "1 of 1 cells" in capsys.readouterr().out
    (kept,) = tmp_path.glob("keyword-dpo-*.json")
    found = json.loads(kept.read_text())["evaluation"]
    assert 0.0 == found["threshold"]
    assert 1.0 == found["attacker"]["attack_success_rate"]["value"]
