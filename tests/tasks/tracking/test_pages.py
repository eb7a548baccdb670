import json

from astra_core.files import write_json
from tasks.machine.ports import SERVICES
from tasks.tracking.pages import pages_of, run_page, runs_page, share_view


class _Client:
    def __init__(self):
        self.tags = {}

    def set_experiment_tag(self, experiment_id, key, value):
        self.tags[experiment_id, key] = json.loads(value)


def test_the_view_of_the_link_is_kept_with_its_experiment():
    client = _Client()
    share_view(client, "7")
    ((experiment, key), view), *_ = client.tags.items()

    assert "7" == experiment
    assert runs_page("7").endswith(
        f"viewStateShareKey={key.removeprefix('mlflow.sharedViewState.')}"
    )
    assert "metrics.`final/attack_success_rate`" == view["selectedColumns"][0]
    (section,) = view["compareRunSections"]
    assert {section["uuid"]} == {chart["metricSectionId"] for chart in view["compareRunCharts"]}
    # MLflow keeps at most so many letters of a tag of an experiment.
    assert 5000 > len(json.dumps(view))


def test_links_lead_to_the_classic_page_of_runs_and_to_what_a_run_keeps():
    server = "http://127.0.0.1:5000"

    assert (
        f"{server}/#/experiments/7/runs?workflowType=machine_learning&viewStateShareKey=astra"
        == runs_page("7", server=server)
    )
    assert "/#/experiments/7/runs/ab" == run_page("7", "ab")
    assert "/#/experiments/7/runs/ab/artifacts/report.html" == run_page(
        "7", "ab", artifact="report.html"
    )


def test_a_store_on_this_machine_is_shown_where_astra_ui_serves_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    usual = pages_of("sqlite:///mlflow.db")
    (tmp_path / SERVICES).parent.mkdir()
    served = {"name": "mlflow-server", "pid": 1, "started": 0.0, "url": "http://127.0.0.1:5055"}
    write_json([served], SERVICES)
    shown = pages_of("sqlite:///mlflow.db")
    SERVICES.write_text("[7]", encoding="utf-8")

    assert ["http://127.0.0.1:5000", "http://127.0.0.1:5055"] == [usual, shown]
    assert usual == pages_of("sqlite:///mlflow.db")
