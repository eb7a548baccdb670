import pytest
from tiny_benchmark import QUICK, TINY

from benchmarks.measures.update import learner, report
from benchmarks.shapes import rewarded_graphs, system

pytestmark = [
    pytest.mark.wide,
    pytest.mark.filterwarnings("ignore"),  # TRL's import warns about other libraries
]


def test_update_reports_costs_ratios_and_equality():
    found = report(TINY, QUICK)
    gaps = [figure for figure in found.figures if "gap" in figure.name]

    assert ["update", "update vs TRL", "update bf16"] == list(found.ratios)
    assert ["fp32", "bf16"] == [text.split(",")[1].strip() for text in found.tables]
    assert all(
        way in text for way in ("ours, pairs shuffled", "plain way", "TRL") for text in found.tables
    )
    assert len(gaps) == 8
    assert all(figure.is_kept for figure in gaps)


@pytest.mark.wide
def test_shuffled_pairs_have_the_loss_and_gradient_of_whole_trees():
    own = system(TINY)
    learned = learner(TINY, own, rewarded_graphs(TINY, own, 6))
    whole, shuffled = learned.step(6), learned.step(6, shuffle="steps")

    assert shuffled.loss == pytest.approx(whole.loss, rel=1e-5)
    assert shuffled.grad_norm == pytest.approx(whole.grad_norm, rel=1e-5)
