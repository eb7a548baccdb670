"""What one stage leaves for the next, broken in between; and what a person compares by hand."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from cases import Case, both, changed_json, cut, folder_at, without, without_key, write

from tasks.records.rollouts import write_rollouts

RATE = {"value": 0.5, "low": 0.4, "high": 0.6}
EXAMINED = {"attack_success_rate": RATE, "unique_probes": 1.0, "distinct_2": 0.5}
# Beside the prompts, the models and the tables: what a run leaves, tiny.
WHOLE = {
    "models/attacker/astra.json": {"digest": "d" * 64},
    "reports/training.json": {
        "run_key": "r" * 64,
        "checkpoint_digest": "d" * 64,
        "training_steps": 3,
        "optimizer_steps": 3,
        "engine": "plain",
        "training_precision": "fp32",
        "system_precision": "fp32",
        "num_nonfinite": 0,
        "num_empty_experiences": 0,
        "stopped_because": "all steps done",
        "first": {"metric": "eval/attack_success_rate", "value": 0.4},
        "best": {"metric": "eval/attack_success_rate", "value": 0.5, "training_step": 3},
        "evaluations": [],
    },
    "reports/training_steps.csv": "step,train/loss\n0,\n1,0.5\n",
    "reports/evaluation.json": {
        "evaluation_key": "e" * 64,
        "num_prompts": 2,
        "num_rollouts": 4,
        "depth": 2,
        "threshold": 0.5,
        "confidence": 0.95,
        "attacker": EXAMINED,
        "baseline": EXAMINED,
        "lift": RATE,
    },
    "reports/examples.md": "# Highest-scored turns\n",
    "reports/validation.json": {"success": True},
    "reports/rollouts.json": {"num_prompts": 1},
    "reports/data_docs/prompts.html": "<p>all accepted</p>",
    "reports/data_docs/rollouts.html": "<p>all accepted</p>",
}
COLUMNS = ("prompt_id", "text", "split", "source", "licence", "family")
AGAIN = "run the stages before"
VALID, MANIFEST = "data/valid/train.parquet", "models/base/manifest.json"
ROLLOUTS = "data/rollouts/rollouts.parquet"


def write_tables(folder: Path) -> None:
    """The tables that stand in a project after a run."""
    for split in ("train", "dev", "test"):
        row = dict.fromkeys(COLUMNS, "x") | {"split": split}
        _write(folder / f"data/prompts/{split}.parquet", [row])
    write_rollouts([], folder / ROLLOUTS)
    write_rollouts([], folder / "data/evaluation/attacker.parquet")
    rows = [
        {"role": role, "prompt_id": "p", "success_rate": 0.5} for role in ("attacker", "baseline")
    ]
    _write(folder / "reports/evaluation_prompts.parquet", rows)


def _write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)


def _table(name, rows):
    return lambda folder: _write(folder / name, rows)


def _no_row(name, columns):
    table = pa.table({column: pa.array([], pa.string()) for column in columns})
    return lambda folder: pq.write_table(table, folder / name)


def _tree_of(name, **changes):
    """A table of rollouts with one turn of which something is wrong."""

    def arrange(folder):
        schema = pq.read_schema(folder / name)
        values = {field.name: _zero(field.type) for field in schema}
        row = {**values, "path": "0", "parent": "", "prompt_id": "p", **changes}
        pq.write_table(pa.Table.from_pylist([row], schema=schema), folder / name)

    return arrange


def _zero(kind):
    if pa.types.is_list(kind):
        return []
    return "" if pa.types.is_string(kind) else 0


def _stage(stage, name, words, arrange):
    return Case(f"{stage}: {name}", ("tasks", stage), words, arrange)


MISSING = [
    _stage(stage, f"{path} is missing", (f"stage {stage} must find {path}", "dvc repro"), gone)
    for stage, path, gone in (
        ("registration", "reports/evaluation.json", without("reports/evaluation.json")),
        ("registration", "reports/training.json", without("reports/training.json")),
        ("registration", "reports/examples.md", without("reports/examples.md")),
    )
]
TABLES = [
    _stage(stage, f"{file} {name}", (file, words), arrange)
    for stage, file, words in (
        ("validation", "data/prompts/train.parquet", "run the stage 'prompts' again"),
        ("rollouts", VALID, AGAIN),
        ("registration", "reports/evaluation_prompts.parquet", AGAIN),
        ("training", ROLLOUTS, "run that stage"),
    )
    for name, arrange in (
        ("cut short", cut(file)),
        ("emptied", write(file, b"")),
        ("overwritten", write(file, b"\xff\xfe\x00" * 100)),
        ("of another table", _table(file, [{"x": 1}])),
    )
]
TABLES += [
    _stage(
        "validation",
        "a folder for a table",
        ("data/prompts/dev.parquet",),
        folder_at("data/prompts/dev.parquet"),
    ),
    _stage(
        "validation",
        "a table is gone",
        ("data/prompts/dev.parquet",),
        without("data/prompts/dev.parquet"),
    ),
    _stage(
        "validation",
        "no prompt at all",
        ("data/prompts must hold at least one prompt",),
        both(
            *(
                _no_row(f"data/prompts/{split}.parquet", COLUMNS)
                for split in ("train", "dev", "test")
            )
        ),
    ),
    _stage(
        "rollouts",
        "prompts without text",
        (VALID, "got null"),
        _table(VALID, [{"prompt_id": "a", "text": "b"}, {"prompt_id": "c", "text": None}]),
    ),
    _stage(
        "rollouts",
        "prompts that are lists",
        (VALID, AGAIN),
        _table(VALID, [{"prompt_id": "a", "text": ["b"]}]),
    ),
    _stage(
        "rollouts",
        "no prompt",
        (VALID, "must hold at least one prompt"),
        _no_row(VALID, ("prompt_id", "text")),
    ),
    _stage(
        "training",
        "a turn at no place",
        (ROLLOUTS, "must hold whole trees"),
        _tree_of(ROLLOUTS, path="a.b"),
    ),
    _stage(
        "training",
        "a turn without tokens",
        (ROLLOUTS, "must hold whole trees"),
        _tree_of(ROLLOUTS, probe_ids=None),
    ),
    _stage(
        "registration",
        "steps emptied",
        ("reports/training_steps.csv", AGAIN),
        write("reports/training_steps.csv", ""),
    ),
    _stage(
        "registration",
        "steps of nothing",
        ("reports/training_steps.csv must have the column step",),
        write("reports/training_steps.csv", "a,b\n1,2\n"),
    ),
    _stage(
        "registration",
        "steps in UTF-16",
        ("reports/training_steps.csv", AGAIN),
        write("reports/training_steps.csv", "step,train/loss\n".encode("utf-16")),
    ),
]
RECORDS = [
    _stage(stage, f"{file} {name}", (file, words), write(file, content))
    for stage, file, words in (
        ("rollouts", MANIFEST, "run the models stage"),
        ("training", MANIFEST, "run the models stage"),
        ("evaluation", MANIFEST, "run the models stage"),
        ("registration", "reports/evaluation.json", AGAIN),
        ("registration", "reports/training.json", AGAIN),
        ("registration", "models/attacker/astra.json", AGAIN),
    )
    for name, content in (
        ("emptied", ""),
        ("cut short", '{"a": '),
        ("a list", "[]"),
        ("a number", "5"),
        ("binary", b"\xff\x00\xfe"),
        ("deep", "[" * 100_000),
    )
]
RECORDS += [
    _stage(
        "registration",
        f"no {key}",
        (file, f"must hold {key}"),
        without_key(file, key.partition(".")[0]),
    )
    for file, key in (
        ("reports/evaluation.json", "evaluation_key"),
        ("reports/evaluation.json", "attacker.attack_success_rate.value"),
        ("reports/evaluation.json", "baseline"),
        ("reports/evaluation.json", "lift.value"),
        ("reports/training.json", "run_key"),
        ("reports/training.json", "optimizer_steps"),
        ("models/attacker/astra.json", "digest"),
    )
]
RECORDS += [
    _stage(
        "rollouts",
        f"no {role} in the manifest",
        (place, "run the models stage"),
        without_key(MANIFEST, role),
    )
    for role, place in (
        ("attacker", MANIFEST),
        # A manifest has none where the target has no weights.
        ("target", "the weights of models.target"),
        ("reference", MANIFEST),
    )
]
RECORDS += [
    _stage(
        "rollouts",
        "a number for a role",
        (MANIFEST, "run the models stage"),
        changed_json(MANIFEST, target=5),
    ),
    _stage(
        "rollouts",
        "a role without a path",
        (MANIFEST, "run the models stage"),
        changed_json(MANIFEST, target={"is_outside": True}),
    ),
    _stage(
        "rollouts",
        "a model is gone",
        ("the target's folder must hold a model", "run the models stage"),
        changed_json(MANIFEST, target={"path": "gone", "is_outside": True, "digest": "d"}),
    ),
    _stage(
        "evaluation",
        "the attacker's config cut short",
        ("models/attacker", "must be a Hugging Face causal LM"),
        cut("models/attacker/config.json"),
    ),
    _stage(
        "evaluation",
        "the attacker's weights cut short",
        ("models/attacker", "must be a Hugging Face causal LM"),
        cut("models/attacker/model.safetensors"),
    ),
    _stage(
        "evaluation",
        "the attacker's tokenizer cut short",
        ("models/attacker", "must hold a tokenizer"),
        cut("models/attacker/tokenizer.json"),
    ),
]
EXAMPLES = [
    Case(
        f"astra examples: {name}",
        ("astra", "examples"),
        ("data/evaluation/attacker.parquet", words),
        arrange,
    )
    for name, words, arrange in (
        ("not made yet", "'astra run' makes it", without("data/evaluation/attacker.parquet")),
        ("cut short", "must be a table of rollouts", cut("data/evaluation/attacker.parquet")),
        (
            "another table",
            "must be a table of rollouts",
            _table("data/evaluation/attacker.parquet", [{"x": 1}]),
        ),
        (
            "a turn at no place",
            "must hold whole trees",
            _tree_of("data/evaluation/attacker.parquet", path="?"),
        ),
    )
]
PLACES = [
    _stage(
        "prompts",
        ".astra is a file",
        (".astra must be a folder, got a file",),
        write(".astra", "x"),
    ),
    _stage(
        "prompts",
        ".astra/logs is a file",
        (".astra/logs must be a folder",),
        write(".astra/logs", "x"),
    ),
    _stage(
        "prompts",
        ".astra/failures is a file",
        (".astra/failures must be a folder",),
        write(".astra/failures", "x"),
    ),
]
PIPELINE = [
    Case(
        f"dvc.yaml {name}", ("tasks", "--render", "--check"), ("dvc.yaml", "astra render"), arrange
    )
    for name, arrange in (
        ("is missing", without("dvc.yaml")),
        ("is empty", write("dvc.yaml", "")),
        ("is edited", write("dvc.yaml", "stages: {}\n")),
        ("is cut short", cut("dvc.yaml")),
        ("is Latin-1", write("dvc.yaml", b"# f\xfcr\n")),
        ("is binary", write("dvc.yaml", bytes(range(256)))),
        ("is UTF-16", write("dvc.yaml", "stages: {}\n".encode("utf-16"))),
        ("is a folder", folder_at("dvc.yaml")),
    )
]
CASES = [*MISSING, *TABLES, *RECORDS, *EXAMPLES, *PLACES, *PIPELINE]
