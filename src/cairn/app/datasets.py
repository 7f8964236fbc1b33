"""Sets of recorded states, made: from runs, from public data sets, from experts that play, and from other sets."""

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cairn.app.run import collect_demonstrations
from cairn.codecs.text import said_briefly
from cairn.config.recipe import RunConfig
from cairn.data.action import Invalid
from cairn.data.history import Deed
from cairn.data.ids import ImageId, TaskId
from cairn.data.recorded import PREFIX, Grid, RecordedState, RecordFormat, recorded_task
from cairn.data.task import Purpose, Recorded, Root, Split, Task
from cairn.data.trajectory import Outcome, ScoredGroup, Trajectory
from cairn.errors import ConfigError
from cairn.formats import aitw, android_control, gui_r1, llava, omniact, screenspot
from cairn.formats.rows import DamagedRow, Found
from cairn.ports import BlobStore
from cairn.store.recorded import Division, Manifest, RecordedSet, RecordedWriter, require_no_set
from cairn.store.run import Run, open_run

_SOURCE = "cairn"


def dividing(held_out: float, seed: int) -> Division:
    """So large a share of the tasks held out, drawn by the seed."""
    return Division(held_out=held_out, seed=seed)


# ── from runs ─────────────────────────────────────────────────────────────────


def record_run(run: Path, out: Path, *, division: Division, experts_only: bool = False) -> Manifest:
    """Every turn of every success of a run's training tasks; ways that are the same but for who went them count once.

    Held-out tasks stay out: a policy that learns from the set may still be evaluated on them.
    """
    played = open_run(run)
    writer = RecordedWriter(out, origin=f"the run {run}")
    try:
        _record(played, writer, experts_only=experts_only)
        return writer.finish(division)
    finally:
        writer.abandon()


def _record(played: Run, writer: RecordedWriter, *, experts_only: bool) -> None:
    known: set[tuple[TaskId, tuple[object, ...]]] = set()
    ways: Counter[TaskId] = Counter()
    copied: set[ImageId] = set()
    for group in played:
        for trajectory in _successes(group, experts_only=experts_only):
            task = group.plan.task
            way = (task.id, tuple(turn.action for turn in trajectory.turns))
            if way in known:
                continue
            known.add(way)
            for state in _states(task, trajectory, number=ways[task.id]):
                copy_pictures(state, copied, taken=played.blobs, given=writer.blobs)
                writer.add(state)
            ways[task.id] += 1


def _successes(group: ScoredGroup, *, experts_only: bool) -> Iterator[Trajectory]:
    plan = group.plan
    shown = plan.purpose is Purpose.DEMONSTRATE or not experts_only
    if shown and plan.task.split is Split.TRAIN and isinstance(plan.start, Root):
        yield from (m.trajectory for m in group.members if m.outcome is Outcome.SUCCESS)


def _states(task: Task, trajectory: Trajectory, *, number: int) -> Iterator[RecordedState]:
    history: list[Deed] = []
    for step, turn in enumerate(trajectory.turns):
        if not isinstance(turn.action, Invalid):
            yield RecordedState(
                task=recorded_task(task.template.id, task.index),
                episode=f"{task.id}/{number}" if number else task.id,
                step=step,
                source=_SOURCE,
                start=Recorded(
                    goal=trajectory.goal,
                    history=tuple(history),
                    observation=turn.observation,
                    expert=turn.action,
                    sub_goal=said_briefly(turn.action, turn.observation),
                ),
            )
        history.append(Deed(observation=turn.observation, action=turn.action))


def copy_pictures(state: RecordedState, copied: set[ImageId], *, taken: BlobStore, given: BlobStore) -> None:
    """Take over the screenshots of a state, once each."""
    start = state.start
    for seen in (*(deed.observation for deed in start.history), start.observation):
        if seen.image is not None and seen.image not in copied:
            copied.add(seen.image)
            try:
                given.put(taken.get(seen.image))
            except KeyError:
                raise ConfigError(f"the screenshot {seen.image} of {state.name} is not where it should be") from None


async def collect_recorded(config: RunConfig, out: Path, *, division: Division) -> Manifest:
    """Let experts play the demonstrations of a recipe, and record them; the run itself is not kept."""
    require_no_set(out)
    played = out / "played"
    shutil.rmtree(played, ignore_errors=True)
    try:
        await collect_demonstrations(config, played)
        return record_run(played, out, division=division, experts_only=True)
    finally:
        shutil.rmtree(played, ignore_errors=True)


# ── from public data sets ─────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRequest:
    """One public data set to read."""

    format: RecordFormat
    path: Path
    out: Path
    division: Division = field(default_factory=Division)
    skip_damaged: bool = False
    grid: Grid = Grid.AUTO


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What came of it; `damaged` is empty unless damaged rows were to be skipped."""

    manifest: Manifest
    damaged: tuple[DamagedRow, ...]


def import_set(request: ImportRequest) -> Imported:
    """Read a data set; the first damaged row is a `ConfigError` with its file and line, unless it may be skipped."""
    if not request.path.exists():
        raise ConfigError(f"there is no {request.path} to import")
    writer = RecordedWriter(request.out, origin=f"{request.format}: {request.path}")
    damaged: list[DamagedRow] = []
    try:
        for found in _found(request, writer.blobs):
            if isinstance(found, RecordedState):
                writer.add(found)
            elif request.skip_damaged:
                damaged.append(found)
            else:
                raise ConfigError(f"{found}; --skip-damaged leaves such rows out, and counts them")
        return Imported(manifest=writer.finish(request.division), damaged=tuple(damaged))
    finally:
        writer.abandon()


def _found(request: ImportRequest, blobs: BlobStore) -> Iterator[Found]:
    path = request.path
    match request.format:
        case RecordFormat.SCREENSPOT | RecordFormat.SCREENSPOT_V2 | RecordFormat.SCREENSPOT_PRO:
            return screenspot.read(path, blobs=blobs, name=request.format)
        case RecordFormat.ANDROID_CONTROL:
            return android_control.read(path, blobs=blobs)
        case RecordFormat.AITW:
            return aitw.read(path, blobs=blobs)
        case RecordFormat.GUI_R1:
            return gui_r1.read(path, blobs=blobs)
        case RecordFormat.OMNIACT:
            return omniact.read(path, blobs=blobs)
        case RecordFormat.LLAVA:
            return llava.read(path, blobs=blobs, grid=request.grid)


# ── from other sets ───────────────────────────────────────────────────────────


def write_subset(parent: RecordedSet, out: Path, *, kept: Sequence[RecordedState], origin: str) -> Manifest:
    """These training states, and every held-out one; what is held out stays so."""
    writer = RecordedWriter(out, origin=origin)
    copied: set[ImageId] = set()
    try:
        for state in (*kept, *parent.of(Split.HELD_OUT)):
            copy_pictures(state, copied, taken=parent.blobs, given=writer.blobs)
            writer.add(state)
        held_out = {TaskId(f"{one.template}#{one.task}") for one in parent.listed() if one.split is Split.HELD_OUT}
        return writer.finish(parent.manifest.division, held_out=held_out)
    finally:
        writer.abandon()


# ── looked at ─────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """States of one template."""

    template: str  # without its prefix
    source: str
    tasks: int
    states: int
    held_out: int  # of the states
    steps: float  # mean over the ways
    kinds: tuple[tuple[str, int], ...]  # of the experts' actions, the most frequent first


def describe_set(folder: Path) -> tuple[Manifest, tuple[Row, ...]]:
    """What a set holds, by template."""
    found = RecordedSet(folder)
    listed = found.listed()
    rows: list[Row] = []
    for template in found.templates:
        own = [one for one in listed if one.template == template]
        rows.append(
            Row(
                template=template.removeprefix(PREFIX),
                source=", ".join(dict.fromkeys(one.source for one in own)),
                tasks=len({one.task for one in own}),
                states=len(own),
                held_out=sum(one.split is Split.HELD_OUT for one in own),
                steps=len(own) / len({(one.task, one.episode) for one in own}),
                kinds=tuple(Counter(one.kind for one in own).most_common()),
            )
        )
    return found.manifest, tuple(rows)
