"""A fine-tuning service whose jobs end as a test wants, and which counts what it is asked."""

from collections import Counter

from fastapi import Request, Response

from tasks.serving.wire import RefusalError, make_app

WORDS = ("you are bad", "why so", "never", "we are worse")


class HostileJobs:
    """What the service says.

    Attributes:
        statuses: Of jobs in the order of their creation; the last one's of all further.
        refusal: Of the creation of a job; None creates it.
        asked: Calls by name.
        lost: Answers to this call are lost after it was done, once.
        weights: Bytes that are given out as weights; 0 keeps them.
    """

    def __init__(self, *statuses, refusal=None, error=None, lost=None):
        self.statuses = statuses or ("succeeded",)
        self.refusal, self.error, self.lost = refusal, error, lost
        self.asked, self.weights = Counter(), 0
        self.files, self.jobs, self.bodies = [], [], []
        self.app = make_app("hostile", token=None)
        self._add_routes()

    def _count(self, name):
        self.asked[name] += 1
        if self.lost == name:
            self.lost = None
            msg = "lost"
            raise RefusalError(msg, status=500)

    def _job(self, at):
        status = self.statuses[min(at, len(self.statuses) - 1)]
        made = f"ft:{at}" if status == "succeeded" else None
        return {**self.jobs[at], "status": status, "fine_tuned_model": made, "error": self.error}

    def _add_routes(self):
        app = self.app

        @app.post("/v1/files")
        async def upload(request: Request):
            async with request.form() as form:
                name = form["file"].filename
                content = await form["file"].read()
            self.files.append({"id": f"file-{len(self.files)}", "filename": name})
            self.bodies.append(content)
            self._count("upload")
            return self.files[-1]

        @app.get("/v1/files")
        def files():
            return {"data": self.files, "has_more": False}

        @app.post("/v1/fine_tuning/jobs")
        async def create(request: Request):
            if self.refusal is not None:
                self.asked["create"] += 1
                raise RefusalError(self.refusal, status=400, code="invalid_request")
            body = await request.json()
            self.jobs.append({"id": f"job-{len(self.jobs)}", **body})
            self._count("create")
            return self._job(len(self.jobs) - 1)

        @app.get("/v1/fine_tuning/jobs")
        def jobs():
            return {"data": [self._job(at) for at in range(len(self.jobs))], "has_more": False}

        @app.get("/v1/astra/weights")
        def weights():
            return Response(b"w" * self.weights, 200 if self.weights else 404)

        @app.get("/v1/fine_tuning/jobs/{job_id}")
        def job(job_id: str):
            self._count("look")
            return self._job(int(job_id[4:]))

        @app.post("/v1/chat/completions")
        async def chat(request: Request):
            body = await request.json()
            self._count("chat")
            text = WORDS[body["seed"] % len(WORDS)]
            choice = {"index": 0, "message": {"role": "assistant", "content": text}}
            return {"model": body["model"], "choices": [{**choice, "finish_reason": "stop"}]}
