"""What methods spend to get equally far: the same base policy, the same tasks, real browsers, several seeds."""

import asyncio
import csv
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum
from pathlib import Path

from pydantic import TypeAdapter

from cairn.app.pictures import draw_starts
from cairn.app.run import SNAPSHOTS, TrainRequest, train
from cairn.bench.race import Mark, Race, RaceBudget, best_policy, finished, run_race
from cairn.config import recipe as configuration
from cairn.config.recipe import RunConfig
from cairn.errors import ConfigError
from cairn.loop.course import PROGRESS
from cairn.loop.progress import Phase, read
from cairn.schedule.signals import Signal
from cairn.snapshots.home import Home
from cairn.store.run import RunInfo, open_run


class Method(StrEnum):
    """Ways to spend interactions."""

    VANILLA = "vanilla"  # whole rollouts of every task
    ARPO = "arpo"  # the same, with success replay
    STAGE1 = "stage1"  # single answers at pivots, which are where sampled actions disagree
    VARIANCE = "stage1-variance"  # … where their rewards differ
    ENTROPY = "stage1-entropy"  # … where the first token is uncertain
    EVERYWHERE = "stage1-all"
    RANDOM = "stage1-random"
    IMITATION = "imitation"  # a control: the same states' expert moves, cloned
    HYBRID = "hybrid"  # local, suffix and root rollouts, task by task
    BOTH = "stage1+hybrid"


_SIGNALS = {
    Method.STAGE1: Signal.DISAGREEMENT,
    Method.VARIANCE: Signal.VARIANCE,
    Method.ENTROPY: Signal.ENTROPY,
    Method.EVERYWHERE: Signal.ALL,
    Method.RANDOM: Signal.RANDOM,
}
"""What chooses the pivots, in the methods that only answer."""

ANSWERS = frozenset({*_SIGNALS, Method.IMITATION})
"""Methods that act in no environment while they learn."""

_OTHER_DRAWS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class EfficiencyOptions:
    """What is compared, and where it is kept."""

    suite: str  # the name of a recipe
    recipe: Path
    methods: tuple[Method, ...]
    seeds: int
    work: Path  # the runs: what is finished there is not run again
    results: Path  # the folder of the table
    budget: RaceBudget
    local: RaceBudget  # of methods that only answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One mark of one race; steps and samples of an earlier stage are inside."""

    method: Method
    seed: int
    mark: Mark


def run_efficiency(options: EfficiencyOptions, *, progress: Callable[[str], None] = lambda _: None) -> Path:
    """Run what is missing, and write the table of everything; its path."""
    base = _base(options, progress)
    start = _measured(base, options, progress)
    rows: list[Row] = []
    for seed in range(options.seeds):
        for method in options.methods:
            rows += _rows(method, seed, base, start, options, progress)
            write_rows(rows, table_of(options.results, options.suite))
            write_origins(options)
    return table_of(options.results, options.suite)


def table_of(results: Path, suite: str) -> Path:
    """Where a suite's table lies."""
    return results / f"efficiency-{suite}.csv"


def _base(options: EfficiencyOptions, progress: Callable[[str], None]) -> Path:
    """The policy that all methods start from, cloned from experts."""
    folder = options.work / "base"
    policy = folder / "checkpoints" / Phase.IMITATE
    if not (folder / PROGRESS).exists() or read(folder / PROGRESS).phase is not Phase.DONE:
        progress("the base policy")
        cloned = ("reinforcement.updates=0", "reinforcement.scheduler=tasks", "snapshots.store=none")
        config = configuration.load(options.recipe, cloned)
        begun = (folder / "run.json").exists()
        asyncio.run(train(TrainRequest(config=config, folder=folder, resume=begun, control=False, tensorboard=False)))
    return policy


def _measured(base: Path, options: EfficiencyOptions, progress: Callable[[str], None]) -> Mark:
    """What every race starts with; once for all of them."""
    folder = options.work / "start"
    done = finished(folder)
    if done is None:
        progress("the base policy is measured")
        config = _config(Method.VANILLA, 0, base, options)
        done = asyncio.run(run_race(config, folder, replace(options.budget, updates=0), progress=progress))
    return done.marks[0]


def _rows(
    method: Method,
    seed: int,
    base: Path,
    start: Mark,
    options: EfficiencyOptions,
    progress: Callable[[str], None],
) -> list[Row]:
    def told(what: str) -> None:
        progress(f"{method}, seed {seed}: {what}")

    if method is not Method.BOTH:
        race = _race(method, seed, base, start, options, told)
        return [Row(method=method, seed=seed, mark=mark) for mark in race.marks]
    local = _race(Method.STAGE1, seed, base, start, options, told)
    best = best_policy(_folder(Method.STAGE1, seed, options))
    race = _race(Method.BOTH, seed, best, None, options, told)
    before = max(local.marks, key=lambda mark: mark.train_avg)
    return [
        Row(method=method, seed=seed, mark=replace(mark, samples=mark.samples + before.samples)) for mark in race.marks
    ]


def _race(
    method: Method,
    seed: int,
    policy: Path,
    start: Mark | None,
    options: EfficiencyOptions,
    progress: Callable[[str], None],
) -> Race:
    folder = _folder(method, seed, options)
    done = finished(folder)
    if done is not None:
        return done
    budget = options.local if method in ANSWERS else options.budget
    imitates = method is Method.IMITATION
    config = _config(method, seed, policy, options)
    race = asyncio.run(run_race(config, folder, budget, start=start, imitates=imitates, progress=progress))
    draw_starts(folder, race.scheduler, title=f"{options.suite}: {method}, seed {seed}")
    Home(folder=folder / SNAPSHOTS).raze()  # gigabytes of memory that nobody comes back to
    return race


def _folder(method: Method, seed: int, options: EfficiencyOptions) -> Path:
    return options.work / f"{method}-{seed}"


def _config(method: Method, seed: int, policy: Path, options: EfficiencyOptions) -> RunConfig:
    """The recipe, but for where rollouts start and end.

    Without rehearsal: it would give the most imitation to methods of many small updates.
    """
    # a policy that was chosen for how it did is measured anew, by other draws
    draws = seed + _OTHER_DRAWS if method is Method.BOTH else seed
    same = (f"seed={draws}", f'policy.start="{policy}"', "imitation.updates=0", "reinforcement.rehearsal=0")
    recipe = configuration.load(options.recipe, same)
    # what is compared are interactions: a store that repeats them, as `auto` does in the last resort, would add some
    store = ("snapshots.store=criu",) if recipe.snapshots.store == "auto" else ()
    # the recipe's limit is for schedules that measure, and probe what is mastered: most groups give no gradient
    plain = f"reinforcement.groups_at_most={recipe.reinforcement.groups_per_update}"
    match method:
        case Method.VANILLA:
            own = ("reinforcement.scheduler=tasks", "snapshots.store=none", plain)
        case Method.ARPO:
            own = (
                "reinforcement.scheduler=tasks",
                "snapshots.store=none",
                plain,
                "replay.capacity=8",
                "reinforcement.correction=recomputed",
            )
        case Method.HYBRID | Method.BOTH:
            own = ("reinforcement.scheduler=adaptive", *store)
        case Method.IMITATION:
            own = ("reinforcement.scheduler=pivots", "snapshots.store=none", plain, *_as_reinforced(recipe))
        case _:
            own = (
                "reinforcement.scheduler=pivots",
                "snapshots.store=none",
                plain,
                f"adaptive.signal={_SIGNALS[method]}",
            )
    return configuration.load(options.recipe, (*same, *own))


def _as_reinforced(recipe: RunConfig) -> tuple[str, ...]:
    """Imitation with as many answers in an update, and as large steps, as reinforcement."""
    learning, imitation = recipe.reinforcement, recipe.imitation
    lessons = max(1, learning.groups_per_update * learning.group_size // imitation.answers_per_turn)
    optimizer = learning.optimizer.model_dump()
    return (
        f"imitation.batch_size={lessons}",
        *(f"imitation.optimizer.{key}={value}" for key, value in optimizer.items()),
    )


# ── the table ─────────────────────────────────────────────────────────────────

_MARK = [field.name for field in fields(Mark)]
_ROW = TypeAdapter(Row)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a race's numbers come from."""

    race: str  # the name of its directory
    made: RunInfo


_ORIGINS = TypeAdapter(list[Origin])


def write_origins(options: EfficiencyOptions) -> None:
    """Beside the table, with which machine, commit and command each race was begun."""
    folders = [options.work / name for name in ("base", "start")]
    folders += [_folder(method, seed, options) for method in options.methods for seed in range(options.seeds)]
    if Method.BOTH in options.methods and Method.STAGE1 not in options.methods:
        folders += [_folder(Method.STAGE1, seed, options) for seed in range(options.seeds)]
    found = [
        Origin(race=folder.name, made=open_run(folder).info) for folder in folders if (folder / "run.json").exists()
    ]
    path = table_of(options.results, options.suite).with_suffix(".json")
    path.write_bytes(_ORIGINS.dump_json(found, indent=1, exclude_none=True))


def write_rows(rows: Sequence[Row], path: Path) -> None:
    """One line for each mark."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["method", "seed", *_MARK])
        for row in rows:
            values = asdict(row.mark)
            writer.writerow([row.method, row.seed, *(_cell(values[name]) for name in _MARK)])


def read_rows(path: Path) -> tuple[Row, ...]:
    """What `write_rows` wrote."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return tuple(_row(line) for line in csv.DictReader(file))
    except FileNotFoundError:
        raise ConfigError(f"there is no {path}: run `cairn bench efficiency` first") from None
    except (KeyError, ValueError, TypeError) as error:
        raise ConfigError(f"{path} is damaged: {error}") from error


def _row(line: dict[str, str]) -> Row:
    mark = {name: line[name] or None for name in _MARK}
    return _ROW.validate_python({"method": line["method"], "seed": line["seed"], "mark": mark})


def _cell(value: object) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
