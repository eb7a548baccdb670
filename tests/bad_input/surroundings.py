"""Environment variables that a person set long ago, and places to run from."""

from cases import Case, write

KEEP = "unset it to record in the project's own mlflow.db"
RANKS = (
    ({"RANK": "two"}, "RANK must be a number from 0"),
    ({"RANK": "-1"}, "RANK must be a number from 0"),
    ({"RANK": "1.0"}, "RANK must be a number from 0"),
    ({"RANK": "9" * 5000}, "RANK must be a number from 0"),
    ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK must be a number from 0 to 1, got '2'"),
    ({"WORLD_SIZE": "many"}, "WORLD_SIZE must be a number from 1"),
    ({"WORLD_SIZE": "0"}, "WORLD_SIZE must be a number from 1"),
    ({"WORLD_SIZE": "-2"}, "WORLD_SIZE must be a number from 1"),
    ({"WORLD_SIZE": "1e3"}, "WORLD_SIZE must be a number from 1"),
    ({"WORLD_SIZE": "2"}, "must run in one process, got WORLD_SIZE 2"),
)
GROUPS = (
    ({}, "RANK must be set where WORLD_SIZE is 2"),
    ({"RANK": "0"}, "MASTER_PORT must be set where WORLD_SIZE is 2"),
    ({"RANK": "0", "MASTER_PORT": "29500"}, "MASTER_ADDR must be set where WORLD_SIZE is 2"),
    ({"RANK": "0", "MASTER_PORT": "99999", "MASTER_ADDR": "::1"}, "MASTER_PORT must be a number"),
    ({"RANK": "0", "MASTER_PORT": "-1", "MASTER_ADDR": "::1"}, "MASTER_PORT must be a number"),
    ({"RANK": "0", "MASTER_PORT": "ssh", "MASTER_ADDR": "::1"}, "MASTER_PORT must be a number"),
    ({"RANK": "0", "LOCAL_RANK": "x"}, "LOCAL_RANK must be a number"),
    ({"RANK": "0", "LOCAL_WORLD_SIZE": "0"}, "LOCAL_WORLD_SIZE must be a number"),
)
STORES = (
    ("nonsense", "the address of a server or a database"),
    ("foo://bar", "sqlite, postgresql, mysql, mssql, http or https"),
    ("::", "the address of a server or a database"),
    ("http://", "an address such as http://127.0.0.1:5000"),
    ("http://[::1", "an address such as"),
    ("http://a:99999", "an address such as"),
    ("https://a b", "an address such as"),
    ("postgresql://me:secret@db/astra", "whose driver is installed"),
    ("mysql://me@db/astra", "whose driver is installed"),
    ("mssql+pyodbc://me@db/astra", "whose driver is installed"),
    ("postgresql+nonsense://db/astra", "sqlite, postgresql"),
    ("oracle://db", "driver is installed"),
    ("sqlite://", "the path of a file"),
    ("sqlite:///", "the path of a file"),
    ("sqlite:///data", "not of a folder"),
    ("sqlite:///params.yaml/mlflow.db", "MLFLOW_TRACKING_URI must name"),
    ("sqlite:///" + "x" * 5000, "too long"),
    ("file:///data", "the address of a server or a database"),
    ("/data/mlruns", "the address of a server or a database"),
    ("x" * 5000, "the address of a server or a database"),
)
SERVERS = (
    ("nonsense", "an address such as http://127.0.0.1:4200/api"),
    ("ftp://a/api", "an address such as"),
    ("http://", "an address such as"),
    ("http://[::1", "an address such as"),
    ("http://127.0.0.1:99999/api", "an address such as"),
    ("http://127.0.0.1:-1/api", "an address such as"),
    ("http://a b/api", "an address such as"),
    ("http://ä/api", "an address such as"),
    ("/" + "x" * 5000, "an address such as"),
)


def _shown(variables):
    return ", ".join(f"{name}={value[:20]}" for name, value in variables.items()) or "nothing"


CASES = [
    *(
        Case(f"prompts with {_shown(each)}", ("tasks", "prompts"), (words,), environment=each)
        for each, words in RANKS
    ),
    *(
        Case(
            f"training of two with {_shown(each)}",
            ("tasks", "training"),
            (words, "torchrun"),
            environment={"WORLD_SIZE": "2", **each},
        )
        for each, words in GROUPS
    ),
    *(
        Case(
            f"{command} with MLFLOW_TRACKING_URI={uri[:40]}",
            ("astra", command),
            ("MLFLOW_TRACKING_URI must name", words, KEEP),
            environment={"MLFLOW_TRACKING_URI": uri},
        )
        for command, stores in (
            ("rollback", STORES),
            ("run", STORES[:2]),
            ("promote", STORES[7:8]),
            ("reevaluate", STORES[:1]),
        )
        for uri, words in stores
    ),
    *(
        Case(
            f"{command} with PREFECT_API_URL={url[:30]}",
            ("astra", command),
            ("PREFECT_API_URL must be", words, "unset it"),
            environment={"PREFECT_API_URL": url},
        )
        for command, servers in (
            ("deploy", SERVERS),
            ("run", SERVERS[:1]),
            ("worker", SERVERS[3:4]),
            ("promote", SERVERS[1:2]),
            ("reevaluate", SERVERS[:1]),
        )
        for url, words in servers
    ),
    *(
        Case(
            f"{command} at a server that is away",
            ("astra", command),
            ("a Prefect server must answer at http://127.0.0.1:9/api", "astra ui"),
            environment={"PREFECT_API_URL": "http://127.0.0.1:9/api"},
        )
        for command in ("deploy", "run", "worker", "promote")
    ),
    *(
        Case(
            f"run with {name}={value}",
            ("astra", "run"),
            ("Prefect's setting", "unset the variable"),
            environment={name: value},
            alone=True,
            wide=name != "PREFECT_API_REQUEST_TIMEOUT",
        )
        for name, value in (
            ("PREFECT_LOGGING_LEVEL", "LOUD"),
            ("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "soon"),
            ("PREFECT_API_REQUEST_TIMEOUT", "x"),
        )
    ),
    Case(
        "rollback at a tracker that is away",
        ("astra", "rollback"),
        ("http://127.0.0.1:9 must answer", "MLFLOW_TRACKING_URI"),
        environment={"MLFLOW_TRACKING_URI": "http://127.0.0.1:9"},
        alone=True,
    ),
    *(
        Case(
            f"{command[1]} with a store that is no database",
            command,
            ("mlflow.db must answer, got DatabaseError", "restore that file"),
            write("mlflow.db", b"no database" * 1000),
            alone=True,
        )
        for command in (
            ("astra", "rollback"),
            ("astra", "ui", "--prefect-port", "4498", "--mlflow-port", "4499"),
        )
    ),
    *(
        Case(
            f"a process of nonsense: {_shown(each)}",
            ("tasks", "training"),
            (words,),
            environment=each,
            alone=True,
        )
        for each, words in RANKS[:1]
    ),
]
