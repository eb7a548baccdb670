import io
import time

import pytest
from tiny_training import Ready, configured, sampler_of, trainer_of

from astra_core.training.progress import Move, Progress, Reports, StepReport, progress_bar
from astra_parts.scorers.phrases import PhraseScorer
from astra_parts.testing import tiny_system


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_run_says_where_its_time_went(tmp_path):
    reports = list(trainer_of(configured(), tmp_path).steps())
    first_of_step = [
        report
        for before, report in zip([None, *reports], reports, strict=False)
        if before is None or before.training_step != report.training_step
    ]

    assert 3 == len(first_of_step)
    for report in reports:
        timings = report.timings
        assert (report in first_of_step) == (timings["time/rollout_s"] > 0.0)
        assert (report in first_of_step) == (timings["time/score_s"] > 0.0)
        assert report.num_tokens / timings["time/train_s"] == pytest.approx(
            timings["time/tokens_per_s"]
        )
    # Before the first step, after the second and after the last.
    evaluated = [r.training_step for r in reports if r.timings["time/eval_s"] > 0.0]
    assert [2, 3] == evaluated[-2:]


def test_scoring_is_not_counted_as_rollout(monkeypatch):
    # The clock moves by what the scorer says, whatever else the machine does.
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    class Slow(PhraseScorer):
        def score(self, texts):
            now[0] += 1.0
            return [0.5] * len(texts)

    sampler = sampler_of(tiny_system(scorer=Slow(PhraseScorer.Options(phrases=("x",)))))
    from astra_core.algorithms.dpo import DPO
    from astra_core.training.harness import Harness

    harness = Harness(sampler, DPO(DPO.Options(), system=sampler.system), num_episodes=1)
    experience = harness.experience(0)

    # A call for each of the two levels of the tree.
    assert 2.0 == experience.score_s


def test_what_a_run_is_comes_back():
    progress = trainer_of(configured(training_steps=1)).train()

    assert progress == Progress.of(progress.record())
    assert 1 == len(progress.evaluations) - 1


def test_a_terminal_sees_how_much_is_done_of_how_much(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    seen = []
    trainer_of(configured(), is_evaluated=False, sampler=Ready).train(
        lambda report: seen.append(report.step)
    )

    assert "training" in screen.getvalue()
    assert "100%" in screen.getvalue()
    assert list(range(1, len(seen) + 1)) == seen


def test_nothing_is_drawn_where_nobody_looks(capsys):
    with progress_bar("training", total=3) as show:
        show(2)

    assert ("", "") == capsys.readouterr()


def test_a_report_counts_what_its_update_learned_from():
    trainer = trainer_of(
        configured(batch_size=1, gradient_accumulation_steps=2), is_evaluated=False
    )
    experience = trainer.harness.experience(0)
    (window, *_) = trainer.windows(experience)
    report = trainer.update(window, experience, is_first=False)
    first = trainer.update(window, experience)

    assert 2 == len(window)
    num_tokens = sum(int(batch.rows.attention_mask.sum()) for batch in window)
    assert (1, 1, num_tokens) == (report.step, report.training_step, report.num_tokens)
    assert num_tokens / report.timings["time/train_s"] == report.timings["time/tokens_per_s"]
    assert (0.0, 0.0) == (report.timings["time/rollout_s"], report.timings["time/score_s"])
    assert (experience.rollout_s, experience.score_s) == (
        first.timings["time/rollout_s"],
        first.timings["time/score_s"],
    )
    row = first.row()
    assert (first.loss, first.grad_norm, 0.01, num_tokens, 0.0) == tuple(
        row[f"train/{name}"] for name in ("loss", "grad_norm", "lr", "num_tokens", "is_skipped")
    )
    assert experience.metrics == {name: row[name] for name in experience.metrics}
    # Means over the pairs of the window, each of which weighs the same.
    logged = trainer.algorithm.step(window[0])[1], trainer.algorithm.step(window[1])[1]
    weights = [batch.weight for batch in window]
    again = trainer.updates.apply(window, training_step=0).metrics
    # Movements are means over probes, see test_movement.
    for name, value in again.items():
        if name.startswith("moved_"):
            continue
        mean = sum(w * logs[name] for w, logs in zip(weights, logged, strict=True)) / sum(weights)
        assert mean == pytest.approx(value, rel=1e-5, abs=1e-6)


def report_of(step, **timings):
    return StepReport(step, 1, 0.5, 1.0, 0.1, 10, is_skipped=False, metrics={}, timings=timings)


def test_an_update_is_reported_once_with_the_figures_it_had_last():
    heard, reports = [], Reports()
    reports.note(report_of(1))
    reports.to(heard.append)
    reports.note(report_of(2))
    reports.note(report_of(2, **{"time/eval_s": 1.0}))
    reports.add_evaluation(2.0)
    assert [] == heard

    reports.note(report_of(3))
    reports.flush()
    reports.flush()
    assert [2, 3] == [report.step for report in heard]
    assert 3.0 == heard[0].timings["time/eval_s"]


def test_a_warning_names_the_farthest_experience():
    moves = [Move(1, 4.0, 4.0), Move(2, 31.9, 30.0), Move(3, 12.0, 12.0)]
    progress = Progress(moves=moves)
    text = progress.moved_too_far(8.0)

    assert text.startswith("experience 2 and 1 more moved the attacker 31.9 nats per probe")
    assert text.endswith("of 8; lower training.lr, 'astra tune-lr' suggests one")
    assert not progress.moved_too_far(32.0)
    assert not progress.moved_too_far(None)
    assert progress == Progress.of(progress.record())


def test_a_move_of_an_older_checkpoint_is_read():
    progress = Progress(moves=[Move(1, 4.0, 4.0)])
    record = progress.record()
    record["moves"][0]["lr_factor"] = 1.0

    assert progress == Progress.of(record)


def test_the_first_signal_that_is_known_is_kept():
    progress = Progress()
    for signal in ({}, {"rollout/reply_signal": 0.1}, {"rollout/reply_signal": 0.9}):
        progress.note(signal, is_empty=not signal)

    assert (1, 0.1) == (progress.num_empty, progress.reply_signal)
    assert progress == Progress.of(progress.record())
