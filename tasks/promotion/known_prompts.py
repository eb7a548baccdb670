"""Which prompts the attackers of a registry have met, by fingerprints kept with each version.

A split says only which prompts are trained on today. Another data seed, other fractions or another
file make another split, so each registration keeps the prompts that its attacker was trained and
examined on.
"""

import hashlib
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from astra_core.files import record_digest, write_text
from tasks.records.prompt_table import SPLITS
from tasks.tracking.artifacts import fetch, kept_files

if TYPE_CHECKING:
    from mlflow import MlflowClient

KNOWN_FILE = "known_prompts.txt"
KNOWN_FOLDER = "data"
KNOWN_TAG = "astra.known_prompts"
"""The tag of a version with the digest of its record; versions with the same data share it."""
VALID = Path("data/valid")

_BATCH_ROWS = 8192


@dataclass(frozen=True, slots=True)
class KnownPrompts:
    """Prompts that do not count as fresh.

    ``unrecorded``: versions that were registered without a record of their prompts.
    """

    fingerprints: frozenset[str]
    unrecorded: tuple[str, ...] = ()


def fingerprint(text: str) -> str:
    r"""A hash that ignores case, white space, invisible characters and Unicode form.

    >>> fingerprint("How are you?") == fingerprint(" HOW  are\tyou\uff1f ")
    True
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    # Case folding can undo the normal form: it makes two characters out of some single ones.
    folded = unicodedata.normalize("NFKC", folded)
    seen = "".join(char for char in folded if char.isspace() or not _is_invisible(char))
    spaced = " ".join(seen.split())
    return hashlib.sha256(spaced.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def fingerprints_of(valid: Path) -> frozenset[str]:
    """The fingerprints of every valid prompt in a folder of splits; none without a folder."""
    return frozenset(fingerprint(text) for text in _texts(valid))


def known_digest(valid: Path) -> str:
    """The digest of what ``write_known`` writes."""
    return record_digest(sorted(fingerprints_of(valid)))


def write_known(valid: Path, path: Path) -> None:
    """Writes the fingerprints of the splits to ``path``, one per line, sorted."""
    write_text("".join(f"{known}\n" for known in sorted(fingerprints_of(valid))), path)


def known_prompts(client: "MlflowClient", name: str) -> KnownPrompts:
    """The prompts of the present data and of all versions of a model.

    All versions count and not only the champion, which may have begun from another's weights.
    """
    known = set(fingerprints_of(VALID))
    records: dict[str, frozenset[str] | None] = {}
    of_version: dict[str, str] = {}
    for version in client.search_model_versions(f"name = '{name}'"):
        run_id = str(version.run_id)
        # One fetch for each record and not for each version; older versions have no such tag.
        key = version.tags.get(KNOWN_TAG) or run_id
        of_version[str(version.version)] = key
        if records.get(key) is None:
            records[key] = _fingerprints_in_run(client, run_id)
    unrecorded = [number for number, key in of_version.items() if records[key] is None]
    for record in records.values():
        known |= record or frozenset()
    return KnownPrompts(frozenset(known), tuple(sorted(unrecorded, key=int)))


def _fingerprints_in_run(client: "MlflowClient", run_id: str) -> frozenset[str] | None:
    """The fingerprints that a registration kept in its run, or None if it kept none."""
    if KNOWN_FILE not in kept_files(client, run_id, KNOWN_FOLDER):
        return None
    with fetch(client, run_id, f"{KNOWN_FOLDER}/{KNOWN_FILE}") as path:
        return frozenset(path.read_text(encoding="utf-8").split())


def _is_invisible(char: str) -> bool:
    return unicodedata.category(char) in {"Cf", "Cc"}


def _texts(valid: Path) -> Iterator[str]:
    import pyarrow.parquet as pq

    for path in (valid / f"{split}.parquet" for split in SPLITS):
        if not path.is_file():
            continue
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=["text"]):
                yield from batch.column("text").to_pylist()
