"""Error-recovery scenarios of a policy's own mistakes, made in a live environment and written down as states."""

import asyncio
import shutil
import zlib
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from cairn.app.datasets import copy_pictures
from cairn.app.environments import build_environment, choose_templates, require_browser
from cairn.app.recorded import PreparedStates, Recording
from cairn.app.run import open_brain
from cairn.app.schedulers import matching_rules
from cairn.app.snapshots import with_snapshots
from cairn.app.training import build_runner
from cairn.codecs.text import said_briefly
from cairn.config.recipe import RunConfig, answering
from cairn.data.action import Action, Invalid
from cairn.data.checkpoint import Checkpoint
from cairn.data.history import Deed
from cairn.data.ids import GroupId, ImageId, SnapshotId, TaskId, TemplateId
from cairn.data.matching import Matching
from cairn.data.observation import Observation
from cairn.data.recorded import PREFIX, Instruction, RecordedState, Recovery, recorded_task, recovery_of
from cairn.data.task import Purpose, Recorded, RolloutPlan, Split, Task
from cairn.data.trajectory import RULES, Outcome, ScoredGroup
from cairn.envs.recorded import RecordedEnvironment
from cairn.errors import ConfigError, SessionError
from cairn.ports import BlobStore, Codec
from cairn.rollout.recovery import Mistake, Rejection, Rescuer, Scenario, save_way
from cairn.rollout.unwrap import one_error
from cairn.snapshots.environment import SnapshotEnvironment
from cairn.snapshots.home import Home
from cairn.store.blobs import BorrowingBlobs
from cairn.store.events import FanOut
from cairn.store.recorded import Manifest, RecordedSet, RecordedWriter, require_no_set
from cairn.testing.memory import MemoryBlobs

SOURCE = "recovery"
"""What scenarios name as where they come from."""
_BLOCK = 64  # states that are asked about at once
_WORKSHOP = "states"  # the folder of the snapshots, while there are any


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverRequest:
    """Whose mistakes, at which states, and how they are looked for."""

    folder: Path  # a set that experts or a run made of the environment's tasks
    config: RunConfig  # of the policy's run
    saved: Path  # its weights
    out: Path
    answers: int = 8  # sampled at each state; the paper does not say how many
    per_state: int = 2  # different mistakes that are tried at each state at most
    escapes: int = 8  # tried for each mistake at most
    store: str = "auto"
    alone: bool = False  # the scenarios without the states that they were made at


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """What came of it."""

    manifest: Manifest
    asked: int  # states
    hesitant: int  # of them: some answers right, some wrong
    mistakes: int  # tried
    scenarios: int
    held_out: int  # of the scenarios
    rejected: tuple[tuple[Rejection, int], ...]  # mistakes, the most frequent reason first
    lost_ways: tuple[str, ...]  # that could not be gone again, with what went wrong


Told = Callable[[str, int, int], None]
"""Told of the part that goes on, how much of it is done, and of how much."""


def _silent(part: str, done: int, whole: int) -> None:
    del part, done, whole


async def recover(request: RecoverRequest, *, progress: Told = _silent) -> Recovered:
    """Sample answers at every state, do the wrong ones of hesitant states, and write down those that can be undone.

    States of held-out tasks make held-out scenarios. A state is hesitant where some of the answers are right and some
    wrong: there the policy's mistakes are its own, and it can do better (error-prone steps of InfiGUI-R1).
    """
    require_no_set(request.out)
    require_browser(request.config.environment)
    found = RecordedSet(request.folder)
    config = answering(request.config, request.folder)
    writer = RecordedWriter(request.out, origin=f"{request.folder}, with the mistakes of {request.saved}")
    brain = open_brain(config, blobs=BorrowingBlobs(writer.blobs, lender=found.blobs), saved=request.saved)
    try:
        record = Recording(found, codec=brain.codec, config=config)
        ways = tuple(_ways(found, request.config, brain.codec))
        environment = RecordedEnvironment(templates=record.templates)
        runner = build_runner(config, environment=environment, brain=brain, events=FanOut([]))
        wrong = await _asked(ways, runner.round, request, matching_rules(config), progress)
        tried = await _tried(request, ways, wrong, codec=brain.codec, blobs=writer.blobs, told=progress)
        manifest = _written(request, found, writer, ways, tried)
    finally:
        writer.abandon()
        shutil.rmtree(request.out / _WORKSHOP, ignore_errors=True)
        await brain.engine.close()
    made = {place: len(scenarios) for place, scenarios in tried.scenarios.items()}
    return Recovered(
        manifest=manifest,
        asked=wrong.asked,
        hesitant=len(wrong.actions),
        mistakes=sum(made.values()) + tried.rejected.total(),
        scenarios=sum(made.values()),
        held_out=sum(n for (way, _), n in made.items() if ways[way].states[0].task.split is Split.HELD_OUT),
        rejected=tuple(tried.rejected.most_common()),
        lost_ways=tuple(tried.lost_ways),
    )


async def _tried(
    request: RecoverRequest, ways: "Sequence[_Way]", wrong: "_Wrong", *, codec: Codec, blobs: BlobStore, told: Told
) -> "_Tried":
    """Every mistake, in sessions of the live environment."""
    snapshots = request.config.snapshots.model_copy(update={"store": request.store})
    live = build_environment(request.config.environment, blobs=blobs)
    home = Home(folder=request.out / _WORKSHOP)
    try:
        async with with_snapshots(live, snapshots, home=home, blobs=blobs, events=FanOut([])) as saved:
            rescuer = Rescuer(sessions=saved, codec=codec, most=request.escapes)
            return await _Search(environment=saved, rescuer=rescuer, told=told).all(ways, wrong)
    finally:
        await live.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """An expert's whole way, as recorded."""

    task: Task  # of the environment
    states: tuple[RecordedState, ...]

    @property
    def deeds(self) -> tuple[Deed, ...]:
        return tuple(Deed(observation=s.start.observation, action=s.start.expert) for s in self.states)


def _ways(found: RecordedSet, config: RunConfig, codec: Codec) -> Iterator[_Way]:
    """Those whose tasks the environment has, from the first step to the last."""
    environment = build_environment(config.environment, blobs=MemoryBlobs())
    known = {template.id: template for template in choose_templates(environment, ())}
    ways: defaultdict[tuple[TaskId, str], list[RecordedState]] = defaultdict(list)
    told = PreparedStates(found.everything(), codec=codec, instruction=Instruction(config.recorded.instruction))
    for state in told:
        if recovery_of(state.task.template.id) is None:
            ways[state.task.id, state.episode].append(state)
    whole = 0
    for states in ways.values():
        states.sort(key=lambda state: state.step)
        template = known.get(TemplateId(states[0].task.template.id.removeprefix(PREFIX)))
        if template is not None and [state.step for state in states] == list(range(len(states))):
            whole += 1
            task = Task(template=template, split=Split.TRAIN, index=states[0].task.index)
            yield _Way(task=task, states=tuple(states))
    if not whole:
        raise ConfigError(
            f"{found.folder} holds no whole way through a task of {environment.name}: mistakes can only be made where "
            "the environment can be opened"
        )


# ── what the policy gets wrong ────────────────────────────────────────────────


Ask = Callable[[Sequence[RolloutPlan]], Awaitable[Sequence[ScoredGroup]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wrong:
    """What the policy does wrong, by way and step."""

    actions: dict[tuple[int, int], tuple[Action, ...]]  # the most frequent first
    asked: int  # states


async def _asked(ways: Sequence[_Way], ask: Ask, request: RecoverRequest, rules: Matching, told: Told) -> _Wrong:
    places = [(way, step) for way in range(len(ways)) for step in range(len(ways[way].states))]
    found: dict[tuple[int, int], tuple[Action, ...]] = {}
    for first in range(0, len(places), _BLOCK):
        block = places[first : first + _BLOCK]
        groups = await ask([_plan(ways[way].states[step], way, tries=request.answers) for way, step in block])
        for place, group in zip(block, groups, strict=True):
            wrong = _mistakes(group, rules)
            if wrong:
                found[place] = wrong[: request.per_state]
        told("asked at states", min(first + _BLOCK, len(places)), len(places))
    return _Wrong(actions=found, asked=len(places))


def _plan(state: RecordedState, way: int, *, tries: int) -> RolloutPlan:
    return RolloutPlan(
        group_id=GroupId(f"recover/{way}/{state.name}"),
        task=state.task,
        start=state.start,
        group_size=tries,
        depth=1,
        purpose=Purpose.REESTIMATE,
        seed=zlib.crc32(state.name.encode()),
    )


def _mistakes(group: ScoredGroup, rules: Matching) -> tuple[Action, ...]:
    """One action of each kind of mistake, the most frequent first; none unless some answers are right."""
    answered = [m for m in group.members if RULES[m.outcome].in_success_rate and m.trajectory.turns]
    wrong = [m.trajectory.turns[0].action for m in answered if m.outcome is not Outcome.SUCCESS]
    if len(wrong) == len(answered):
        return ()
    said = [action for action in wrong if not isinstance(action, Invalid)]
    start = group.plan.start
    seen = start.observation if isinstance(start, Recorded) else None
    if not said or seen is None:
        return ()
    clusters = sorted(rules.clusters(said, seen), key=len, reverse=True)
    return tuple(said[cluster[0]] for cluster in clusters)


# ── what can be undone ────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tried:
    """What came of the mistakes: scenarios by the state that they were made at."""

    scenarios: dict[tuple[int, int], list[Scenario]] = field(default_factory=dict[tuple[int, int], list[Scenario]])
    rejected: Counter[Rejection] = field(default_factory=Counter[Rejection])
    lost_ways: list[str] = field(default_factory=list[str])  # with what went wrong


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    """Tries mistakes, way by way, as many at once as the environment has places for."""

    environment: SnapshotEnvironment
    rescuer: Rescuer
    told: Told

    async def all(self, ways: Sequence[_Way], wrong: _Wrong) -> _Tried:
        found, done = _Tried(), 0
        steps: defaultdict[int, list[int]] = defaultdict(list)
        for way, step in wrong.actions:
            steps[way].append(step)
        places = asyncio.Semaphore(self.environment.capacity)

        async def one(way: int) -> None:
            nonlocal done
            async with places:
                await self._way(way, ways[way], {step: wrong.actions[way, step] for step in steps[way]}, found)
            done += 1
            self.told("went ways again", done, len(steps))

        with one_error():
            async with asyncio.TaskGroup() as tasks:
                for way in steps:
                    tasks.create_task(one(way))
        return found

    async def _way(self, number: int, way: _Way, wrong: Mapping[int, Sequence[Action]], found: _Tried) -> None:
        try:
            kept = await save_way(self.environment, way.task, way=way.deeds, wanted=frozenset(wrong))
        except SessionError as error:
            found.lost_ways.append(str(error))
            return
        for step, snapshot in kept.items():
            for action in wrong[step]:
                outcome = await self.rescuer.scenario(_mistake(way, step, snapshot, action))
                if isinstance(outcome, Scenario):
                    found.scenarios.setdefault((number, step), []).append(outcome)
                else:
                    found.rejected[outcome] += 1
            await self.environment.release(snapshot)


def _mistake(way: _Way, step: int, snapshot: SnapshotId, action: Action) -> Mistake:
    start = way.states[step].start
    return Mistake(
        checkpoint=Checkpoint(
            task=way.task,
            goal=start.goal,
            history=start.history,
            observation=start.observation,
            expert=start.expert,
            snapshot=snapshot,
        ),
        wrong=action,
        rest=tuple(later.start.expert for later in way.states[step:]),
    )


# ── written down ──────────────────────────────────────────────────────────────


def states_of(state: RecordedState, scenario: Scenario, *, number: int) -> Iterator[RecordedState]:
    """A state for each action of the escape, and the one after it; on the same side of the split as their origin."""
    start = state.start
    history = [*start.history, Deed(observation=start.observation, action=scenario.mistake.wrong)]
    name = state.task.template.id.removeprefix(PREFIX)

    def after(kind: Recovery, step: int, seen: Observation, expert: Action, sub_goal: str) -> RecordedState:
        task = recorded_task(f"{kind}/{name}", state.task.index)
        return RecordedState(
            task=replace(task, split=state.task.split),
            episode=f"{state.name}~{number}",
            step=step,
            source=SOURCE,
            start=Recorded(goal=start.goal, history=tuple(history), observation=seen, expert=expert, sub_goal=sub_goal),
        )

    for step, deed in enumerate(scenario.escape):
        undo = f"undo the last step: {said_briefly(deed.action, deed.observation)}"
        yield after(Recovery.ESCAPE, step, deed.observation, deed.action, undo)
        history.append(deed)
    yield after(Recovery.ON_TRACK, len(scenario.escape), scenario.back, start.expert, start.sub_goal)


def _written(
    request: RecoverRequest, found: RecordedSet, writer: RecordedWriter, ways: Sequence[_Way], tried: _Tried
) -> Manifest:
    copied: set[ImageId] = set()
    held_out: set[TaskId] = set()

    def add(state: RecordedState) -> None:
        copy_pictures(state, copied, taken=BorrowingBlobs(writer.blobs, lender=found.blobs), given=writer.blobs)
        writer.add(state)
        if state.task.split is Split.HELD_OUT:
            held_out.add(replace(state.task, split=Split.TRAIN).id)

    for state in () if request.alone else found.everything():
        add(state)
    for (way, step), scenarios in sorted(tried.scenarios.items()):
        for number, scenario in enumerate(scenarios):
            for state in states_of(ways[way].states[step], scenario, number=number):
                add(state)
    return writer.finish(found.manifest.division, held_out=held_out)
