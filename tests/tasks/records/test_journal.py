import math

from tasks.records.journal import Journal, step_table


def test_a_journal_drops_what_comes_after_the_checkpoint_and_a_torn_line(tmp_path):
    path = tmp_path / "steps.jsonl"
    journal = Journal(path, last_step=0)
    for step in (1, 2, 3):
        journal.add({"step": step, "train/loss": math.nan})
    with path.open("a") as file:
        file.write('{"step": 4, "tra')
    rows = Journal(path, last_step=2).rows()

    assert [1, 2] == [row["step"] for row in rows]
    assert rows[0]["train/loss"] is None


def test_the_table_has_a_row_for_the_untrained_attacker_and_one_for_each_update():
    rows = [{"step": 1, "training_step": 1, "train/loss": 0.5}, {"step": 2, "training_step": 1}]
    table = step_table(rows, {0: {"eval/x": 0.25}, 2: {"eval/x": 0.75}})

    assert "step,training_step,eval/x,train/loss\n0,0,0.25,\n1,1,,0.5\n2,1,0.75,\n" == table


def test_the_table_is_the_same_whatever_order_its_figures_come_in():
    rows = [{"step": 1, "training_step": 1, "train/loss": 0.5, "rollout/reward": 0.25}]
    figures = {"eval/b": 0.25, "eval/a": 0.75}
    tables = [
        step_table([order(row) for row in rows], {0: order(figures), 1: order(figures)})
        for order in (dict, lambda row: dict(sorted(row.items())))
    ]

    assert tables[0] == tables[1]
    assert tables[0].startswith("step,training_step,eval/a,eval/b,rollout/reward,train/loss\n")
