import pytest

from tasks.tracking.figures import figures_csv, log_figures
from tasks.tracking.store import connect, experiment_id

pytestmark = pytest.mark.real


@pytest.fixture
def client(in_memory):
    return connect()


@pytest.fixture
def run_id(client):
    return client.create_run(experiment_id(client, "experiment")).info.run_id


def recorded(client, run_id):
    return {
        name: [(metric.step, metric.value) for metric in client.get_metric_history(run_id, name)]
        for name in client.get_run(run_id).data.metrics
    }


def test_a_figure_is_recorded_once_at_its_step(client, run_id):
    for _ in range(2):
        log_figures(client, run_id, {"rate": 0.5, "lost": float("nan")}, step=7)

    assert {"rate": [(7, 0.5)]} == recorded(client, run_id)


def test_what_was_not_recorded_before_is_added(client, run_id):
    log_figures(client, run_id, {"rate": 0.5})
    log_figures(client, run_id, {"rate": 0.5, "lift": 0.1})
    log_figures(client, run_id, {"rate": 0.5}, step=1)

    assert {"rate": [(0, 0.5), (1, 0.5)], "lift": [(0, 0.1)]} == recorded(client, run_id)


def test_no_figure_is_no_call(client, run_id):
    log_figures(client, run_id, {"lost": float("inf")})

    assert {} == recorded(client, run_id)


def test_the_table_has_both_attackers_in_a_row():
    told = figures_csv({"final/rate": 0.5, "final/lift": 0.25, "baseline/rate": None})

    assert "figure,trained,untrained\nrate,0.5,\nlift,0.25,\n" == told
