"""Trains by jobs of the own service while a killer strikes: ``python killed_text_training.py DIR``.

Service and trainers are processes of their own, forked once everything is imported; the last of
each run orders sets otherwise. One run is left alone; of the other each process but the last is
killed by SIGKILL when it begins the next of the stages. Prints, as JSON, what each run came to: the
digest of its weights, the requests that the service answered, and its jobs.
"""

import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from job_service import Worker, app_of, served, service_in
from text_training import run

from astra_core.files import record_digest, write_text
from astra_parts.services.trainer_state import TrainerState
from tasks.serving.fine_tuning.store import JobStore

# Of the first iteration, each begun again after the death before; the last one ends the second.
DEATHS = (2, 3, 4, 5)
LONG = {"n_epochs": 20, "batch_size": 1}
PAID = ("/v1/chat/completions", "/v1/files", "/v1/fine_tuning/jobs")
WAIT_S = 900.0


def forked(work):
    """The id of a process that does the work and ends, with 1 where it fails."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:  # noqa: BLE001 - told here, as the process ends at once
            traceback.print_exc()
        finally:
            os._exit(status)
    return child


def ended(child):
    """The exit status of a process, or minus the signal that killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def until(condition):
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def serve(folder, port):
    """Serves and trains until it is killed; writes its address, and what it answered."""
    service = service_in(folder)
    app = app_of(service)

    async def noted(scope, receive, send):
        async def told(message):
            if message["type"] == "http.response.start" and message["status"] == 200:
                with (folder / "asked").open("a") as log:
                    log.write(f"{scope['method']} {scope['path']}\n")
            await send(message)

        await app(scope, receive, told)

    with served(noted, port=port) as url, Worker(service):
        write_text(url, folder / "address")
        signal.pause()


class Service:
    """The service in a folder; it comes back where it was."""

    def __init__(self, folder):
        folder.mkdir()
        self.folder, self.url = folder, ""
        self.begin()

    def begin(self):
        port = urlsplit(self.url).port or 0
        place = self.folder / "address"
        place.unlink(missing_ok=True)
        self.child = forked(lambda: serve(self.folder, port))
        until(place.exists)
        self.url = place.read_text()

    def kill(self):
        os.kill(self.child, signal.SIGKILL)
        assert ended(self.child) == -signal.SIGKILL

    def jobs(self):
        store = JobStore(self.folder / "jobs")
        try:
            return [job.status for job in store.jobs()]
        finally:
            store.close()

    def paid(self):
        asked = Counter((self.folder / "asked").read_text().splitlines())
        return {path: asked[f"POST {path}"] for path in PAID}


def train(folder, url, *, die_at=0):
    """Trains to the end, or dies at a stage; leaves the digest of the weights."""
    move, count = TrainerState.move_to, iter(range(1, 100))

    def move_to(state, iteration, stage):
        move(state, iteration, stage)
        if next(count) == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    TrainerState.move_to = move_to
    options = {"export": True, "min_examples": 1, "job_limit_s": WAIT_S}
    trainer = run(folder, url, hyperparameters=LONG, **options)
    weights = trainer.sampler.system.attacker.model.state_dict()
    digest = record_digest({name: value.tolist() for name, value in weights.items()})
    write_text(digest, folder / "digest")


def came_to(folder, service):
    program = [sys.executable, __file__, str(folder), service.url]
    try:
        subprocess.run(program, env=os.environ | {"PYTHONHASHSEED": "random"}, check=True)
    except subprocess.CalledProcessError:
        service.kill()  # it would keep this process's output open
        raise
    found = {"digest": (folder / "digest").read_text(), "paid": service.paid()}
    found["jobs"] = service.jobs()
    service.kill()
    return found


def main():
    root = Path(sys.argv[1])
    if len(sys.argv) > 2:
        train(root, sys.argv[2])
        return
    service = Service(root / "quiet-service")
    found = {"quiet": came_to(root / "quiet", service)}
    service = Service(root / "killed-service")
    for boundary in DEATHS:
        child = forked(partial(train, root / "killed", service.url, die_at=boundary))
        assert ended(child) == -signal.SIGKILL
    found["killed"] = came_to(root / "killed", service)
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
