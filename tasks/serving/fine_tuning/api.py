"""The routes of the fine-tuning interface: files, and jobs with events and checkpoints."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import FileResponse, Response

from tasks.serving.fine_tuning.lines import FileError, examples_of
from tasks.serving.fine_tuning.requests import JobBody
from tasks.serving.fine_tuning.store import JobStore
from tasks.serving.fine_tuning.tables import Job
from tasks.serving.wire import RefusalError, body_of

PURPOSE = "fine-tune"
FILES = "/v1/files"
MAX_BYTES = 1 << 26
"""Bytes of a training file, which is read as a whole; a longer one is not taken."""
_FORM_BYTES = 1 << 16  # of what a form has around its file
_OWNER = "astra"  # the organization of the interface


@dataclass(frozen=True, slots=True)
class JobService:
    """The models that jobs may begin from, and how they learn.

    Attributes:
        bases: The folder of each model that a job may begin from, beside those of other jobs.
        training: The section ``training``, for what a request does not set.
        system: The section ``system``: separator and lengths.
    """

    store: JobStore
    bases: Mapping[str, Path]
    training: Mapping[str, Any] = field(default_factory=dict)
    system: Mapping[str, Any] = field(default_factory=dict)

    def folders(self) -> dict[str, Path]:
        """The folder of every model: the bases and the results of jobs."""
        return {**self.bases, **self.store.models()}

    def create(self, body: JobBody) -> Job:
        """A new job in the queue, or the existing one with the same idempotency key.

        Raises RefusalError if the file or the model is missing, or the key is of another request.
        """
        request = body.model_dump(mode="json", exclude_unset=True)
        known = self.store.job_of_key(body.key) if body.key else None
        if known is None:
            settings = self._settings(body)
            job_id = f"ftjob-{secrets.token_hex(12)}"
            base = body.model.split(":")[1] if body.model.startswith("ft:") else body.model
            settings["name"] = f"ft:{base}:{_OWNER}:{body.suffix or ''}:{job_id[-8:]}"
            known = self.store.add_job(job_id, key=body.key, request=request, settings=settings)
        if request != known.request:
            msg = f"metadata.idempotency_key belongs to another request, that of job {known.id}"
            raise RefusalError(msg, status=409, param="metadata", code="idempotency_key_in_use")
        return known

    def _settings(self, body: JobBody) -> dict[str, Any]:
        folder = self.folders().get(body.model)
        if folder is None:
            msg = f"The model '{body.model}' does not exist; it must be one of this service"
            raise RefusalError(msg, status=404, param="model", code="model_not_found")
        file = self.store.file(body.training_file)
        if file is None or file["purpose"] != PURPOSE:
            msg = f"training_file must name a file with the purpose '{PURPOSE}'"
            raise RefusalError(msg, param="training_file", code="invalid_training_file")
        try:
            content = self.store.content_path(body.training_file).read_bytes()
            examples = examples_of(content, body.method.type)
        except FileError as error:
            raise RefusalError(
                str(error), param="training_file", code="invalid_training_file"
            ) from None
        hyper = body.settle(len(examples))
        return {
            "folder": str(folder.resolve()),
            "seed": secrets.randbits(31) if body.seed is None else body.seed,
            "hyperparameters": hyper,
            # About four bytes make a token; jobs here are not priced by tokens.
            "num_tokens": max(1, len(content) // 4) * hyper["n_epochs"],
            "training": dict(self.training),
            "system": dict(self.system),
        }


def add_fine_tuning(app: FastAPI, service: JobService) -> None:
    """Adds the routes."""
    _add_files(app, service.store)
    _add_jobs(app, service)
    app.state.longer[FILES] = MAX_BYTES + _FORM_BYTES

    @app.get("/v1/astra/weights")
    def weights(model: str) -> Response:
        """The weights of a model; OpenAI has no such route, our trainers fetch results by it."""
        file = service.folders().get(model, Path("none")) / "model.safetensors"
        if not file.is_file():
            msg = f"The weights of '{model}' must be in one file, got none"
            raise RefusalError(msg, status=404, param="model", code="model_not_found")
        return FileResponse(file, media_type="application/octet-stream")


def _add_files(app: FastAPI, store: JobStore) -> None:
    @app.post(FILES)
    async def upload(request: Request) -> dict[str, Any]:
        async with request.form(max_files=1, max_fields=8) as form:
            unknown = sorted(set(form) - {"file", "purpose"})
            if unknown:
                msg = f"Unrecognized request argument supplied: {unknown[0]}"
                raise RefusalError(msg, param=unknown[0], code="unknown_parameter")
            purpose, file = form.get("purpose"), form.get("file")
            if purpose != PURPOSE:
                msg = f"purpose must be '{PURPOSE}'"
                raise RefusalError(msg, param="purpose", code="invalid_value")
            if not hasattr(file, "read"):
                msg = "file must be a file"
                raise RefusalError(msg, param="file", code="missing_required_parameter")
            content: bytes = await file.read(MAX_BYTES + 1)  # type: ignore[union-attr]
            if len(content) > MAX_BYTES:
                msg = f"file must be at most {MAX_BYTES} bytes"
                raise RefusalError(msg, status=413, param="file", code="file_too_large")
        file_id = f"file-{secrets.token_hex(12)}"
        name = Path(str(file.filename or "file.jsonl")).name  # type: ignore[union-attr]
        await run_in_threadpool(
            store.add_file, file_id, content, filename=name, purpose=str(purpose)
        )
        return _found_file(store, file_id)

    @app.get(FILES)
    def files(
        limit: int = 10_000, after: str | None = None, purpose: str | None = None
    ) -> dict[str, Any]:
        found = [own for own in store.files() if purpose in {None, own["purpose"]}]
        return _page(found, limit=limit, after=after)

    @app.get("/v1/files/{file_id}")
    def file(file_id: str) -> dict[str, Any]:
        return _found_file(store, file_id)

    @app.get("/v1/files/{file_id}/content")
    def content(file_id: str) -> Response:
        _found_file(store, file_id)
        path = store.content_path(file_id)
        return Response(path.read_bytes(), media_type="application/octet-stream")

    @app.delete("/v1/files/{file_id}")
    def delete(file_id: str) -> dict[str, Any]:
        _found_file(store, file_id)
        store.delete_file(file_id)
        return {"id": file_id, "object": "file", "deleted": True}


def _add_jobs(app: FastAPI, service: JobService) -> None:
    store = service.store

    @app.post("/v1/fine_tuning/jobs")
    async def create(request: Request) -> dict[str, Any]:
        body = await body_of(request, JobBody)
        return _job(await run_in_threadpool(service.create, body))

    @app.get("/v1/fine_tuning/jobs")
    def jobs(request: Request, limit: int = 20, after: str | None = None) -> dict[str, Any]:
        wanted = {
            name[len("metadata[") : -1]: value
            for name, value in request.query_params.items()
            if name.startswith("metadata[")
        }
        found = [_job(job) for job in reversed(store.jobs())]
        kept = [own for own in found if wanted.items() <= (own["metadata"] or {}).items()]
        return _page(kept, limit=limit, after=after)

    @app.get("/v1/fine_tuning/jobs/{job_id}")
    def job(job_id: str) -> dict[str, Any]:
        return _job(_found_job(store, job_id))

    @app.post("/v1/fine_tuning/jobs/{job_id}/cancel")
    def cancel(job_id: str) -> dict[str, Any]:
        known = _found_job(store, job_id)
        if not store.move(job_id, "cancelled") and known.status != "cancelled":
            msg = f"a job that has {store.job(job_id).status} cannot be cancelled"
            raise RefusalError(msg, code="invalid_state")
        return _job(store.job(job_id))

    @app.get("/v1/fine_tuning/jobs/{job_id}/events")
    def events(job_id: str, limit: int = 20, after: str | None = None) -> dict[str, Any]:
        _found_job(store, job_id)
        return _page(store.events(job_id), limit=limit, after=after)

    @app.get("/v1/fine_tuning/jobs/{job_id}/checkpoints")
    def checkpoints(job_id: str, limit: int = 10, after: str | None = None) -> dict[str, Any]:
        _found_job(store, job_id)
        return _page(store.checkpoints(job_id), limit=limit, after=after)


def _found_file(store: JobStore, file_id: str) -> dict[str, Any]:
    found = store.file(file_id)
    if found is None:
        msg = f"No such File object: {file_id}"
        raise RefusalError(msg, status=404, param="id", code="not_found")
    return found


def _found_job(store: JobStore, job_id: str) -> Job:
    try:
        return store.job(job_id)
    except KeyError:
        msg = f"Could not find fine tune: {job_id}"
        raise RefusalError(
            msg, status=404, param="fine_tune_id", code="fine_tune_not_found"
        ) from None


def _page(found: Sequence[dict[str, Any]], *, limit: int, after: str | None) -> dict[str, Any]:
    """A page of a list, from after an id."""
    places = [place for place, own in enumerate(found) if own["id"] == after]
    rest = found[places[0] + 1 :] if places else found
    kept = rest[: max(1, limit)]
    ends = {"first_id": kept[0]["id"], "last_id": kept[-1]["id"]} if kept else {}
    return {"object": "list", "data": kept, "has_more": len(rest) > len(kept), **ends}


def _job(job: Job) -> dict[str, Any]:
    """A job in the interface's form."""
    hyper = job.settings["hyperparameters"]
    kind = job.request.get("method", {}).get("type", "supervised")
    return {
        "id": job.id,
        "object": "fine_tuning.job",
        "created_at": job.created_at,
        "finished_at": job.finished_at,
        "status": job.status,
        "model": job.request["model"],
        "fine_tuned_model": job.fine_tuned_model,
        "organization_id": _OWNER,
        "training_file": job.request["training_file"],
        "validation_file": None,
        "result_files": [],
        "trained_tokens": job.trained_tokens,
        "estimated_finish": None,
        "integrations": [],
        "hyperparameters": {name: own for name, own in hyper.items() if name != "beta"},
        "method": {"type": kind, kind: {"hyperparameters": hyper}},
        "seed": job.settings["seed"],
        "error": None if job.error is None else dict(job.error),
        "metadata": job.request.get("metadata"),
        "user_provided_suffix": job.request.get("suffix"),
    }
