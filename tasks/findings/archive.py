"""The archive: one Parquet file for each training and each examination, which only grows.

A file has the name and the bytes that its run decides, so a run that was killed ends with the same
files. Equal and nearly equal conversations with one target become one finding when they are read.
"""

import fcntl
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from astra_core.errors import DataError
from astra_core.files import draft_of, record_digest
from astra_core.rollout import Graph, Node
from astra_parts.metrics.categories import CATEGORY
from tasks.records.prompt_table import read_metadata, spelled_metadata
from tasks.sources.families import FamilyFinder

if TYPE_CHECKING:
    import pyarrow as pa

    from astra_core.system import System
    from astra_core.training.harness import Experience
    from astra_core.training.trainer import Trainer

ARCHIVE = Path("findings")
TRAINING, EVALUATION, MINIMISED = "training", "evaluation", "minimised"
_ID = 16  # hexadecimal digits, as of prompts


@dataclass(frozen=True, slots=True)
class Origin:
    """What the findings of one run share.

    Attributes:
        source: ``training``, ``evaluation`` or ``minimised``.
        run: The key of the training or examination, or the finding that was shortened.
        attacker: Digest of the attacker that was examined; empty for one that was being trained.
        target: Digest of the target.
        judge: Version of the scorer.
        spell: Gives a probe as the target read it; None for as it was said.
    """

    source: str
    run: str
    attacker: str
    target: str
    judge: str
    spell: Callable[[str], str] | None = None

    @classmethod
    def of(cls, system: "System", source: str, run: str, *, attacker: str = "") -> "Origin":
        """The origin of what is rolled out in this System."""
        from astra_core.scorer import version_of

        judge, spell = version_of(system.scorer), system.spell
        return cls(source, run[:_ID], attacker, system.target_digest, judge, spell)


@dataclass(frozen=True, slots=True)
class ArchivedFinding:
    """A conversation at whose last turn the target failed for the first time.

    Attributes:
        finding_id: A hash of target, prompt and conversation: equal ones are one finding.
        source: As the next four, see ``Origin``.
        iteration: Training step of the attacker that was being trained, from 0; else 0.
        prompt_id: Of the prompt that opened it.
        prompt: Its text.
        metadata: The prompt's other columns, as JSON.
        path: Place of the turn in its tree, such as ``0.2``.
        probes: What the attacker said, a text for each turn, as the target read it.
        replies: What the target answered: the reply by which it continued, and at the last turn
            the one that scored highest.
        scores: The judge's scores of all replies of the last turn.
        rationale: The judge's words about the last reply; empty for none.
        score: Mean of the scores.
        times: In how many rollouts it was found.
        others: The IDs of findings that are nearly the same; not in a file.
    """

    finding_id: str
    source: str
    run: str
    attacker: str
    target: str
    judge: str
    iteration: int
    prompt_id: str
    prompt: str
    metadata: str | None
    path: str
    probes: tuple[str, ...]
    replies: tuple[str, ...]
    scores: tuple[float, ...]
    rationale: str
    score: float
    times: int = 1
    others: tuple[str, ...] = ()

    @property
    def turn(self) -> int:
        """The turn at which the target failed, from 1."""
        return len(self.probes)

    @property
    def alike(self) -> int:
        """Number of other findings that are nearly the same."""
        return len(self.others)

    @property
    def category(self) -> str:
        """The prompt's category; empty for none."""
        return str(self.columns.get(CATEGORY) or "")

    @property
    def columns(self) -> dict[str, Any]:
        """The prompt's other columns."""
        return dict(read_metadata(self.metadata))

    def record(self) -> dict[str, Any]:
        """As JSON."""
        told = {"turn": self.turn, "category": self.category, "alike": self.alike}
        return {**asdict(self), "metadata": self.columns, **told}


def keep_findings(
    graphs: Iterable[Graph], origin: Origin, path: Path, *, threshold: float, iteration: int = 0
) -> None:
    """Adds the successes among these trees to a file of the archive; none makes none.

    Args:
        path: The file of this run.
        threshold: A mean score at or above it is a success.
        iteration: Training step of an attacker that is being trained.
    """
    shared = {**asdict(origin), "iteration": iteration}
    found = (
        _finding(graph, turns, shared={**shared})
        for graph in graphs
        for turns in _first_hits(graph.children, (), threshold)
    )
    add_findings(found, path)


@contextmanager
def training_kept(trainer: "Trainer", run_key: str, *, threshold: float) -> Iterator[None]:
    """In the body, the successes of each experience are kept before it is learned from."""
    folder = ARCHIVE / f"{TRAINING}-{run_key[:_ID]}"
    origin = Origin.of(trainer.sampler.system, TRAINING, run_key)

    def keep(experience: "Experience") -> None:
        number = experience.iteration
        path = folder / f"{number:06d}.parquet"
        keep_findings(experience.graphs, origin, path, threshold=threshold, iteration=number)

    trainer.by_hand.on_experience = keep
    yield
    _gather(folder)


def add_findings(found: Iterable[ArchivedFinding], path: Path) -> None:
    """Adds what a file of the archive lacks; equal findings become one with their number of times.

    A run that is repeated adds nothing, unless its target answers otherwise.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    new = {each.finding_id: each for each in _merge(map(_whole_characters, found))}
    if not new:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with lock(path.parent):
        known = {each.finding_id: each for each in read_rows(path)}
        if new.keys() <= known.keys():
            return
        rows = [asdict(each) for each in (new | known).values()]
        rows.sort(key=lambda row: (row["iteration"], row["prompt_id"], row["path"]))
        with draft_of(path) as draft:
            pq.write_table(pa.Table.from_pylist(rows, schema=_schema()), draft)


def _whole_characters(found: ArchivedFinding) -> ArchivedFinding:
    """The finding with half characters, which UTF-8 cannot hold, as JSON writes them."""

    def whole(text: str) -> str:
        return text.encode("utf-8", "backslashreplace").decode()

    probes, replies = tuple(map(whole, found.probes)), tuple(map(whole, found.replies))
    return replace(found, probes=probes, replies=replies, rationale=whole(found.rationale))


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """In the body, no other process changes a file of this folder.

    Raises DataError if it is no folder.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except NotADirectoryError as error:
        msg = f"{folder} must be a folder of findings, got a file; move it elsewhere"
        raise DataError(msg) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _gather(folder: Path) -> None:
    """Makes one file of a folder of files, once its run has ended; again after a kill, too."""
    if folder.is_dir():
        add_findings(_read_all(folder), _whole(folder))
        with lock(folder.parent):
            shutil.rmtree(folder)


def read_archive(
    folder: Path = ARCHIVE,
    choose: Callable[[Sequence[ArchivedFinding]], list[ArchivedFinding]] = list,
) -> list[ArchivedFinding]:
    """Every finding once, the highest score first; of nearly equal ones the first.

    ``choose``: gives those that are wanted. What is not cannot stand for what is.

    Raises DataError if there is none, or a file is broken.
    """
    rows: list[ArchivedFinding] = []
    if folder.exists():
        with lock(folder):
            rows.extend(_read_all(folder))
    if not rows:
        msg = f"{folder}/ must hold findings, got none; 'astra run' keeps the attacks that succeed"
        raise DataError(msg)
    found = sorted(_merge(choose(rows)), key=_by_score)
    return sorted(_families(found), key=_by_score)


def _by_score(each: ArchivedFinding) -> tuple[float, str]:
    return -each.score, each.finding_id


def _families(found: Sequence[ArchivedFinding]) -> Iterator[ArchivedFinding]:
    """The first of each family; what was made shorter is what somebody asked for, so it stays."""
    groups: dict[str, list[ArchivedFinding]] = {}
    for each in found:
        group = each.finding_id if each.source == MINIMISED else each.target
        groups.setdefault(group, []).append(each)
    for own in groups.values():
        finder = FamilyFinder()
        finder.add(" ".join(each.probes) for each in own)
        families: dict[int, list[ArchivedFinding]] = {}
        for root, each in zip(finder.roots().tolist(), own, strict=True):
            families.setdefault(root, []).append(each)
        for first, *others in families.values():
            yield replace(first, others=tuple(each.finding_id for each in others))


def _whole(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.parquet")


def _read_all(folder: Path) -> Iterator[ArchivedFinding]:
    """The rows of all files; the whole file of a run before its pieces, of which it has some."""
    known: dict[Path, set[str]] = {}
    for path in sorted(folder.rglob("*.parquet"), key=lambda own: (len(own.parts), own)):
        whole = known.get(_whole(path.parent), set())
        rows = [each for each in read_rows(path) if each.finding_id not in whole]
        known[path] = {each.finding_id for each in rows}
        yield from rows


def read_rows(path: Path) -> list[ArchivedFinding]:
    """The findings of one file; none if there is no file.

    Raises DataError if the file is broken.
    """
    import pyarrow.parquet as pq
    from pyarrow import ArrowException

    if not path.is_file():
        return []
    schema = _schema()
    try:
        rows = pq.read_table(path).select(schema.names).cast(schema).to_pylist()
        return [_read(row) for row in rows]
    except (OSError, ArrowException, TypeError, ValueError, KeyError) as error:
        msg = f"{path} must hold findings, got {type(error).__name__}; 'dvc checkout', or delete it"
        raise DataError(msg) from error


def _read(row: dict[str, Any]) -> ArchivedFinding:
    lists = {name: tuple(row[name]) for name in ("probes", "replies", "scores")}
    found = ArchivedFinding(**{**row, **lists})
    read_metadata(found.metadata)
    needed = [value for name, value in row.items() if name != "metadata"]
    has_gap = any(None in values for values in (needed, *lists.values()))
    if has_gap or not 0 < len(found.probes) == len(found.replies):
        raise ValueError
    return found


def _merge(found: Iterable[ArchivedFinding]) -> list[ArchivedFinding]:
    """Equal findings as one: the one that was found first, with the sum of the times."""
    known: dict[str, ArchivedFinding] = {}
    for each in found:
        if (first := known.get(each.finding_id)) is None:
            known[each.finding_id] = each
        else:
            kept = min(first, each, key=_by_origin)
            known[each.finding_id] = replace(kept, times=first.times + each.times)
    return list(known.values())


def _by_origin(own: ArchivedFinding) -> tuple[bool, str, str, int, str]:
    return own.source == MINIMISED, own.source, own.run, own.iteration, own.path


def _first_hits(
    nodes: Sequence[Node], before: tuple[Node, ...], threshold: float
) -> Iterator[tuple[Node, ...]]:
    """The turns up to each hit that has no hit before it."""
    for node in nodes:
        turns = (*before, node)
        if node.is_judged and node.score >= threshold:
            yield turns
        else:
            yield from _first_hits(node.children, turns, threshold)


def _finding(graph: Graph, turns: Sequence[Node], *, shared: dict[str, Any]) -> ArchivedFinding:
    last, prompt = turns[-1], graph.prompt
    best = last.response_scores.index(max(last.judged_scores))
    # What the target read, which is said again as it is.
    spell = shared.pop("spell") or str
    probes = tuple(spell(node.probe_text) for node in turns)
    replies = (*(node.response_texts[0] for node in turns[:-1]), last.response_texts[best])
    said = [shared["target"], prompt.prompt_id, probes, replies]
    return ArchivedFinding(
        finding_id=record_digest(said)[:_ID],
        prompt_id=prompt.prompt_id,
        prompt=prompt.text,
        metadata=spelled_metadata(prompt.metadata),
        path=".".join(map(str, last.path)),
        probes=probes,
        replies=replies,
        scores=last.judged_scores,
        rationale=last.response_rationales[best] if last.response_rationales else "",
        score=last.score,
        **shared,
    )


def _schema() -> "pa.Schema":
    import pyarrow as pa

    kinds = {
        **dict.fromkeys(("iteration", "times"), pa.int32()),
        **dict.fromkeys(("probes", "replies"), pa.list_(pa.string())),
        "score": pa.float64(),
        "scores": pa.list_(pa.float64()),
    }
    names = [field.name for field in fields(ArchivedFinding) if field.name != "others"]
    return pa.schema([(name, kinds.get(name, pa.string())) for name in names])
