"""A real server on loopback with tiny models, as ``astra serve-jobs`` has it."""

import json
import threading
import time
from contextlib import contextmanager

from astra_parts.testing import tiny_language_model
from tasks.serving.fine_tuning.api import JobService, add_fine_tuning
from tasks.serving.fine_tuning.store import JobStore
from tasks.serving.fine_tuning.training import run_job
from tasks.serving.inference import Speakers, add_inference
from tasks.serving.wire import make_app

SYSTEM = {
    "max_context_tokens": 64,
    "tokens_per_batch": 512,
    "scorer": {"name": "phrases", "options": {"phrases": ["x"]}},
}
ASKED, SAID, WORSE = "why so", "you are bad", "never"


def service_in(folder):
    tiny = folder / "tiny"
    if not tiny.is_dir():
        tiny_language_model(0).save(tiny)
    return JobService(
        JobStore(folder / "jobs"), {"tiny": tiny}, training={"lr": 0.01}, system=SYSTEM
    )


def app_of(service, *, token=None):
    app = make_app("test", token=token)
    add_inference(app, Speakers(service.folders))
    add_fine_tuning(app, service)
    return app


@contextmanager
def served(app, *, port=0):
    """The address of a server that runs in a thread."""
    import uvicorn

    config = uvicorn.Config(app, port=port, log_level="critical", lifespan="off", access_log=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.should_exit = True
        thread.join()


def client_of(url, key="none"):
    import openai  # takes a second

    return openai.OpenAI(base_url=url, api_key=key, max_retries=0, timeout=60)


def supervised(count=9, said=SAID):
    turn = [{"role": "user", "content": ASKED}, {"role": "assistant", "content": said}]
    return "\n".join(json.dumps({"messages": turn}) for _ in range(count)).encode()


def preferences(count=9):
    record = {
        "input": {"messages": [{"role": "user", "content": ASKED}]},
        "preferred_output": [{"role": "assistant", "content": SAID}],
        "non_preferred_output": [{"role": "assistant", "content": WORSE}],
    }
    return "\n".join(json.dumps(record) for _ in range(count)).encode()


def uploaded(client, content):
    return client.files.create(file=("examples.jsonl", content), purpose="fine-tune").id


class Worker:
    """Trains the jobs of a service, as its keeper would have it done."""

    def __init__(self, service):
        self.service = service
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self.work, daemon=True)

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *_):
        self.is_over.set()
        self.thread.join()

    def work(self):
        while not self.is_over.wait(0.02):
            for job in self.service.store.jobs("queued", "running"):
                run_job(self.service.store.folder, job.id)
