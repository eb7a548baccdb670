"""Command lines that ask for what is not there."""

from pathlib import Path

from cases import CHECK, Case, cut, folder_at, write

HIGH = "input should be less than or equal to 65535, got"
LOW = "input should be greater than or equal to 1, got"
WHOLE = "input should be a valid integer"
HELP = ". See 'astra"
ASTRA = (
    (("bogus",), "No such command 'bogus'"),
    (("run", "--fast"), "No such option: --fast"),
    (("run", "extra"), "unexpected extra argument"),
    (("run", "--set"), "Option '--set' requires an argument"),
    (("check", "x"), "unexpected extra argument"),
    (("ui", "--prefect-port", "99999"), f"--prefect-port: {HIGH} '99999'"),
    (("ui", "--prefect-port", "-1"), f"--prefect-port: {LOW} '-1'"),
    (("ui", "--prefect-port", "0"), f"--prefect-port: {LOW} '0'"),
    (("ui", "--prefect-port", "http"), f"--prefect-port: {WHOLE}"),
    (("ui", "--prefect-port", "9" * 5000), "--prefect-port"),
    (("ui", "--mlflow-port", "65536"), f"--mlflow-port: {HIGH} '65536'"),
    (("ui", "--mlflow-port", "-1"), f"--mlflow-port: {LOW} '-1'"),
    (("ui", "--mlflow-port", "5000.5"), f"--mlflow-port: {WHOLE}"),
    (("examples", "--count", "0"), f"--count: {LOW} '0'"),
    (("examples", "--count", "-3"), f"--count: {LOW} '-3'"),
    (("examples", "--count", "many"), f"--count: {WHOLE}"),
    (("examples", "--count", "9" * 30), "--count: input should be less than or equal to"),
    (("judge-check",), "Missing argument 'file'"),
    (("judge-check", "none.csv", "--threshold", "2"), "--threshold"),
    (("judge-check", "none.csv", "--threshold", "nan"), "--threshold"),
    (("reevaluate", "--seed", "-1"), "--seed: input should be greater than or equal to 0"),
    (("reevaluate", "--seed", "today"), f"--seed: {WHOLE}"),
    (("reevaluate", "--seed", "9" * 30), "--seed: input should be less than or equal to"),
    (("reevaluate", "--seed", "9" * 5000), "--seed"),
    (("render", "--chek"), "No such option"),
    (("trial", "--price-per-million-tokens", "cheap"), "--price-per-million-tokens"),
    (("trial", "--price-per-million-tokens", "nan"), "or equal to 0, got 'nan'"),
    (("trial", "--reveal=yes"), "--reveal"),
    (("worker", "--all"), "No such option"),
)
JUDGE_CHECK = (
    (("none.csv", "--judge", "profanity"), "got 'none.csv' (nothing there)"),
    (("data", "--judge", "profanity"), "FILE must be one of ['.csv', '.jsonl', '.parquet']"),
    (("x" * 5000 + ".csv", "--judge", "profanity"), "FILE must name a file of labelled replies"),
    (("none.csv", "--judge", ""), "--judge"),
    (
        ("none.csv", "--judge", "params.yaml"),
        "--judge must be a name, null or a file with name and options",
    ),
    (("none.csv", "--judge", "none.yaml"), "none.yaml must exist"),
    (("none.csv", "--judge", "nonsense"), "unknown scorer 'nonsense'"),
    (("none.csv", "--judge", "phrases"), "phrases"),
    (("none.csv", "--judge", "profanity", "--column", "label"), "must read NAME=COLUMN"),
    (("none.csv", "--judge", "profanity", "--column", "lable=x"), "must read NAME=COLUMN"),
)
TASKS = (
    (("trainig",), "did you mean 'training'?"),
    (("nonsense",), "unknown stage 'nonsense'; stages are"),
    (("",), "python -m tasks"),
    (("x" * 5000,), "unknown stage"),
    (("training", "extra"), "unrecognized arguments: extra"),
    (("--chek",), "unrecognized arguments: --chek"),
    (("--render=x",), "--render"),
)
BENCHMARKS = (
    (("speed",), "unknown measure 'speed'; measures are ['trainer_overhead', 'rollout',"),
    (("--only", "speed"), "invalid choice: 'speed'"),
    (("--only",), "expected at least one argument"),
    (("--shape", "round"), "invalid choice: 'round'"),
    (("--threads", "0"), "must be a whole number from 1"),
    (("--threads", "-1"), "--threads"),
    (("--threads", "two"), "must be a whole number"),
    (("--repetitions", "0"), "must be a whole number from 1"),
    (("--plain-repetitions", "0.5"), "must be a whole number"),
    (("--trees", "9" * 5000), "must be a whole number"),
    (("--markdown", "no/such/page.md"), "(nothing there)"),
    (("--markdown", "data"), "(a folder)"),
    (("--markdown", "x" * 5000), "too long"),
    (("--markdown", "models/base/tiny/model.safetensors"), "must be a page in UTF-8"),
)
DUMP = '{"names": ["a"], "figures": {}}'
DUMPS = (
    ("none", (), "the following arguments are required"),
    ("one", ("a",), "the following arguments are required"),
    ("not there", ("a", "b"), "must hold a dump"),
    ("a name too long", ("x" * 5000, "b"), "must hold a dump"),
    ("no limit", ("a", "b", "--tolerance", "low"), "must be a number of at least 0"),
    ("a limit below zero", ("a", "b", "--tolerance=-1"), "must be a number of at least 0"),
    ("a limit of NaN", ("a", "b", "--tolerance", "nan"), "must be a number of at least 0"),
)
BROKEN_DUMPS = (
    ("empty", write("d/dump.json", "")),
    ("a list", write("d/dump.json", "[]")),
    ("names that are a number", write("d/dump.json", '{"names": 5}')),
    ("without names", write("d/dump.json", "{}")),
    ("binary", write("d/dump.json", b"\xff\x00")),
    ("a folder", folder_at("d/dump.json")),
    ("without tensors", write("d/dump.json", DUMP)),
)
DEPLOY = (
    ("empty", write("prefect.yaml", ""), "must list deployments"),
    ("cut short", cut("prefect.yaml", 0.75), "prefect.yaml must"),
    ("Latin-1", write("prefect.yaml", b"# f\xfcr\n"), "must be UTF-8"),
    ("a list", write("prefect.yaml", "- a\n"), "must list deployments"),
    ("no deployments", write("prefect.yaml", "name: astra\n"), "must list deployments"),
    ("empty deployments", write("prefect.yaml", "deployments: []\n"), "at least one deployment"),
    ("a number of deployments", write("prefect.yaml", "deployments: 5\n"), "must list"),
    (
        "a deployment without a name",
        write("prefect.yaml", "deployments: [{schedules: []}]\n"),
        "name",
    ),
    (
        "a schedule that is a number",
        write("prefect.yaml", "deployments: [{name: a, schedules: [5]}]\n"),
        "must list",
    ),
    ("an anchor of itself", write("prefect.yaml", "a: &a [*a]\n"), "an anchor that holds itself"),
    ("a folder", folder_at("prefect.yaml"), "must be a file, got a folder"),
)


def _shown(arguments):
    return " ".join(argument[:20] for argument in arguments) or "nothing"


CASES = [
    *(
        Case(f"astra {_shown(each)} ({sum(map(len, each))})", ("astra", *each), (words, HELP))
        for each, words in ASTRA
    ),
    *(
        Case(f"gc --days {days}", ("astra", "gc", "--days", days), ("--days must lie in 0 to",))
        for days in ("inf", "1e300")
    ),
    *(
        Case(f"init {_shown([folder])}", ("astra", "init", folder), ("FOLDER must", rule))
        for folder, rule in (
            ("x" * 5000, "can be made"),
            ("/proc/x", "can be made"),
            (str(Path(__file__).parents[2] / "new"), "lie outside of"),
        )
    ),
    *(
        Case(
            f"the key {key}",
            CHECK,
            (f"{place} must have a name", f"got {told}"),
            write("params.yaml", text),
        )
        for key, place, told, text in (
            ("null", "params.yaml", "null", "null: 3\n"),
            ("true", "params.yaml", "true", "true: 3\n"),
            ("false", "system", "false", "system: {false: 3}\n"),
            ("infinity", "params.yaml", "Infinity", ".inf: 3\n"),
        )
    ),
    *(
        Case(f"judge-check {_shown(each)}", ("astra", "judge-check", *each), (words,))
        for each, words in JUDGE_CHECK
    ),
    *(
        Case(f"tasks {_shown(each)}", ("tasks", *each), (words,))
        for each, words in TASKS
        if each != ("",)
    ),
    *(
        Case(f"benchmarks {_shown(each)}", ("benchmarks", *each), (words,))
        for each, words in BENCHMARKS
    ),
    *(
        Case(f"dumps: {name}", ("astra_parts.dumps", *each), (words,))
        for name, each, words in DUMPS
    ),
    *(
        Case(
            f"a dump that is {name}",
            ("astra_parts.dumps", "d", "d"),
            ("'d' must hold a dump", "training.dump_steps"),
            arrange,
        )
        for name, arrange in BROKEN_DUMPS
    ),
    *(
        Case(f"prefect.yaml: {name}", ("astra", "deploy"), ("prefect.yaml", words), arrange)
        for name, arrange, words in DEPLOY
    ),
    *(
        Case(f"python -m benchmarks {name}", ("benchmarks", name, *arguments), (words,))
        for name, arguments, words in (
            ("seeds", ("one",), "must be a whole number of at least 0"),
            ("data_scale", ("0",), "must be a whole number from 1"),
            ("default_run", ("--fast",), "unrecognized arguments"),
        )
    ),
]
