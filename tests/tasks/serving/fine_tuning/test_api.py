import httpx
import pytest
from each_row import each_row
from job_service import app_of, client_of, preferences, served, service_in, supervised, uploaded

from tasks.serving.fine_tuning.training import run_job

TWO = supervised(2)


@pytest.fixture(scope="module")
def openai():
    import openai  # takes a second

    return openai


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    return service_in(tmp_path_factory.mktemp("service"))


@pytest.fixture(scope="module")
def url(service):
    with served(app_of(service)) as address:
        yield address


def create(client, content=TWO, **more):
    asked = {"model": "tiny", "training_file": uploaded(client, content), **more}
    return client.fine_tuning.jobs.create(**asked)


@pytest.mark.real
def test_files_come_back_as_they_went(url, openai):
    client = client_of(url)
    file_id = uploaded(client, supervised(2))

    assert "processed" == client.files.retrieve(file_id).status
    assert supervised(2) == client.files.content(file_id).read()
    assert file_id in [own.id for own in client.files.list()]
    assert client.files.delete(file_id).deleted
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(file_id)


@pytest.mark.real
def test_a_whole_job_by_the_unmodified_client(url, service):
    client = client_of(url)
    method = {"type": "dpo", "dpo": {"hyperparameters": {"n_epochs": 3, "beta": 0.2}}}
    job = create(client, preferences(4), method=method, suffix="pairs", seed=3)
    assert ("queued", None, 3) == (job.status, job.fine_tuned_model, job.seed)
    run_job(service.store.folder, job.id)
    done = client.fine_tuning.jobs.retrieve(job.id)

    assert "succeeded" == done.status
    assert 0.2 == done.method.dpo.hyperparameters.beta
    assert done.fine_tuned_model.startswith("ft:tiny:astra:pairs:")
    events = list(client.fine_tuning.jobs.list_events(job.id, limit=2))
    assert 5 == len(events)
    assert {"message", "metrics"} == {own.type for own in events}
    points = client.fine_tuning.jobs.checkpoints.list(job.id).data
    assert [2, 1] == [own.step_number for own in points]
    for model in (done.fine_tuned_model, points[0].fine_tuned_model_checkpoint):
        said = client.completions.create(model=model, prompt="why so", max_tokens=2)
        assert said.choices


@pytest.mark.real
def test_a_job_may_begin_from_what_a_job_has_made(url, service):
    client = client_of(url)
    first = create(client)
    run_job(service.store.folder, first.id)
    made = client.fine_tuning.jobs.retrieve(first.id).fine_tuned_model
    second = create(client, model=made)
    run_job(service.store.folder, second.id)

    found = client.fine_tuning.jobs.retrieve(second.id).fine_tuned_model
    assert found.startswith("ft:tiny:")
    assert found != made


def test_a_key_creates_one_job_and_belongs_to_one_request(url, openai):
    client = client_of(url)
    file_id = uploaded(client, supervised(2))
    asked = {"model": "tiny", "training_file": file_id, "metadata": {"idempotency_key": "one"}}
    jobs = {client.fine_tuning.jobs.create(**asked).id for _ in range(3)}

    assert 1 == len(jobs)
    with pytest.raises(openai.ConflictError):
        client.fine_tuning.jobs.create(**asked, suffix="other")
    found = client.fine_tuning.jobs.list(metadata={"idempotency_key": "one"})
    assert jobs == {own.id for own in found}


@pytest.mark.real
def test_a_job_is_cancelled_once_and_not_after_its_end(url, service, openai):
    client = client_of(url)
    job = create(client)

    assert "cancelled" == client.fine_tuning.jobs.cancel(job.id).status
    assert "cancelled" == client.fine_tuning.jobs.cancel(job.id).status
    done = create(client)
    run_job(service.store.folder, done.id)
    with pytest.raises(openai.BadRequestError, match="succeeded"):
        client.fine_tuning.jobs.cancel(done.id)


def test_a_list_continues_after_an_id(url):
    client = client_of(url)
    made = [create(client).id for _ in range(3)]
    first = client.fine_tuning.jobs.list(limit=2)

    assert first.has_more
    assert list(reversed(made)) == [own.id for own in first][:3]


@each_row(
    ("more", "kind"),
    [
        ({"model": "other"}, "NotFoundError"),
        ({"training_file": "file-none"}, "BadRequestError"),
        ({"method": {"type": "reinforcement"}}, "BadRequestError"),
        ({"validation_file": "file-none"}, "BadRequestError"),
        ({"extra_body": {"trainer": "mine"}}, "BadRequestError"),
    ],
)
def test_what_is_not_offered_is_refused(url, openai, more, kind):
    with pytest.raises(getattr(openai, kind)) as refused:
        create(client_of(url), **more)

    assert refused.value.param


def test_a_wrong_file_is_refused_before_it_is_queued(url, openai):
    client = client_of(url)
    with pytest.raises(openai.BadRequestError, match="line 1"):
        create(client, preferences(2), method={"type": "supervised"})
    with pytest.raises(openai.BadRequestError, match="purpose"):
        client.files.create(file=("a", b"{}"), purpose="batch")
    assert 400 == httpx.post(f"{url}/files", data={"purpose": "fine-tune"}).status_code


def test_an_unknown_job_is_an_error_of_the_interface(url, openai):
    jobs = client_of(url).fine_tuning.jobs
    for ask in (jobs.retrieve, jobs.cancel, jobs.list_events, jobs.checkpoints.list):
        with pytest.raises(openai.NotFoundError):
            ask("ftjob-none")
