import pytest
from each_row import each_row

from astra_core.errors import CheckpointError
from astra_core.files import read_json, write_json
from astra_core.training.staged import TrainerStage, walk
from astra_parts.services import trainer_state
from astra_parts.services.trainer_state import TrainerState


class Service:
    """Keeps what it was asked to create, as a service would; counts the requests that create."""

    def __init__(self):
        self.jobs, self.num_created = {}, 0

    def create(self, intent):
        self.num_created += 1
        self.jobs[intent.key] = f"job-{self.num_created}"
        return {"id": self.jobs[intent.key]}

    def find(self, intent):
        return {"id": self.jobs[intent.key]} if intent.key in self.jobs else None


class Jobs:
    """Two iterations of two jobs, and what was made of them."""

    def __init__(self, path, service, *, size=1):
        self.state = TrainerState.open(path, run="run")
        self.service, self.size = service, size

    def run(self):
        stages = [TrainerStage("create", self.create), TrainerStage("switch", lambda _: None)]
        for iteration in range(self.state.iteration, 2):
            list(walk(self.state, stages, iteration))

    def create(self, _):
        for model in ("a", "b"):
            self.state.once(
                model,
                {"model": model, "size": self.size},
                do=self.service.create,
                look_up=self.service.find,
            )


def test_killed_at_any_write_nothing_is_created_twice(tmp_path, monkeypatch):
    service = Service()
    Jobs(tmp_path / "whole.json", service).run()
    whole = read_json(tmp_path / "whole.json")
    assert 4 == service.num_created

    for moment in range(1, 13):
        for is_before in (True, False):
            path, killed = tmp_path / f"{moment}_{is_before}.json", Service()
            with monkeypatch.context() as patch:
                patch.setattr(trainer_state, "write_json", dying(moment, is_before=is_before))
                with pytest.raises(KeyboardInterrupt):
                    Jobs(path, killed).run()
            Jobs(path, killed).run()

            assert 4 == killed.num_created
            assert whole == read_json(path)


def dying(moment, *, is_before):
    """Writes files until the process is killed, right before or after one of them."""
    count = iter(range(1, 100))

    def write(record, path):
        is_the_last = next(count) == moment
        if not (is_the_last and is_before):
            write_json(record, path)
        if is_the_last:
            raise KeyboardInterrupt

    return write


def test_an_intent_that_came_to_nothing_is_done_after_all(tmp_path):
    def refusing(intent):
        raise KeyboardInterrupt

    service, path = Service(), tmp_path / "state.json"
    state = TrainerState.open(path, run="run")
    with pytest.raises(KeyboardInterrupt):
        state.once("", {}, do=refusing)
    again = TrainerState.open(path, run="run")

    assert {"id": "job-1"} == again.once("", {}, do=service.create, look_up=service.find)
    assert 1 == len(service.jobs)
    assert {"id": "job-1"} == again.result("", 0)


def test_another_request_under_the_same_name_is_refused(tmp_path):
    path = tmp_path / "state.json"
    Jobs(path, Service()).run()
    state = TrainerState.open(path, run="run")
    state.move_to(0, "create")

    with pytest.raises(CheckpointError, match="0/create/a must ask what it asked before"):
        Jobs(path, Service(), size=2).run()


def test_keys_differ_between_runs_iterations_stages_and_parts(tmp_path):
    keys = set()
    for run in ("one", "other"):
        state = TrainerState.open(tmp_path / f"{run}.json", run=run)
        for iteration, stage in ((0, "create"), (0, "wait"), (1, "create")):
            state.move_to(iteration, stage)
            for part in ("a", "b"):
                state.once(part, {}, do=lambda intent: keys.add(intent.key) or {})

    assert 12 == len(keys)


@each_row("text", ["{", "[]", '{"run": "run"}', '{"run": 1, "format": 1}'])
def test_a_damaged_file_is_reported(text, tmp_path):
    (tmp_path / "state.json").write_text(text)

    with pytest.raises(CheckpointError, match="must hold a trainer's state, got"):
        TrainerState.open(tmp_path / "state.json", run="run")


def test_the_file_of_another_run_is_refused(tmp_path):
    TrainerState.open(tmp_path / "state.json", run="run").move_to(0, "create")

    with pytest.raises(CheckpointError, match="must be of run 'other' in format 1, got 'run'"):
        TrainerState.open(tmp_path / "state.json", run="other")
