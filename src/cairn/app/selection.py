"""Selecting from a set of recorded states by what a policy answers there."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice
from pathlib import Path

import numpy as np

from cairn.algo.selection import UI_R1_MIX, Answered, bottlenecks, difficult, diverse, undecided
from cairn.app.datasets import write_subset
from cairn.app.recorded import PreparedStates, Recording, require_states
from cairn.app.run import open_brain
from cairn.app.training import build_runner
from cairn.config.recipe import RunConfig, answering
from cairn.data.ids import GroupId
from cairn.data.recorded import Instruction, RecordedState, sound
from cairn.data.task import Purpose, RolloutPlan, Split
from cairn.data.trajectory import RULES, Outcome, ScoredGroup
from cairn.envs.recorded import RecordedEnvironment
from cairn.errors import ConfigError
from cairn.rollout.runner import RolloutRunner
from cairn.store.events import FanOut
from cairn.store.recorded import Manifest, RecordedSet, require_no_set

_UI_R1_SIZE = 136  # states that it was trained on
_BLOCK = 64  # states that are asked about at once


class Rule(StrEnum):
    """Published ways to choose."""

    UI_R1 = "ui-r1"  # quality, then difficulty, then diversity
    GUI_R1 = "gui-r1"  # neither all right nor all wrong
    BOTTLENECK = "bottleneck"  # wrong with the goal, right with the step's own goal too (InfiGUI-R1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectRequest:
    """What to choose from, how, and by whose answers."""

    folder: Path
    rule: Rule
    config: RunConfig  # of the policy's run
    saved: Path  # its weights
    out: Path
    answers: int | None = None  # at each state; None: as published, ten for `gui-r1`, else one greedy one
    size: int | None = None  # of `ui-r1`; None: as published

    def __post_init__(self) -> None:
        if self.size is not None and self.rule is not Rule.UI_R1:
            raise ConfigError(f"--size is of --rule ui-r1: {self.rule} keeps every state that it finds worth it")
        if self.rule is Rule.GUI_R1 and self.answers == 1:
            raise ConfigError("--rule gui-r1 needs --answers 2 or more: it keeps what is answered right and wrong both")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """What came of it."""

    manifest: Manifest
    asked: int  # training states
    kept: int
    right: float  # share of the answers that were right, with the goal as their instruction


Told = Callable[[int, int], None]
"""Told at how many states the policy has been asked, of how many."""


def _silent(done: int, whole: int) -> None:
    del done, whole


async def select(request: SelectRequest, *, progress: Told = _silent) -> Selected:
    """Ask the policy at every training state, and write those that the rule keeps, with all held-out ones."""
    require_no_set(request.out)
    found = RecordedSet(request.folder)
    require_states(found, Split.TRAIN)
    config = answering(request.config, request.folder)
    brain = open_brain(config, blobs=found.blobs, saved=request.saved)
    try:
        record = Recording(found, codec=brain.codec, config=config)
        raw = found.of(Split.TRAIN).chosen(record.learnable().places)  # what cannot be said is no difficulty
        if request.rule is Rule.BOTTLENECK and not any(state.start.sub_goal for state in raw):
            raise ConfigError(f"{request.folder} knows no step's own goal: bottleneck steps cannot be told")
        environment = RecordedEnvironment(templates=record.templates)
        runner = build_runner(config, environment=environment, brain=brain, events=FanOut([]))
        asking = _Asking(request=request, runner=runner, progress=progress)
        goal = await asking.measured(PreparedStates(raw, codec=brain.codec, instruction=Instruction.GOAL))
        told: Sequence[Answered] = ()
        if request.rule is Rule.BOTTLENECK:
            told = await asking.measured(PreparedStates(raw, codec=brain.codec, instruction=Instruction.BOTH))
    finally:
        await brain.engine.close()
    places = _kept(request, raw, goal, told)
    if not places:
        raise ConfigError(f"of {len(raw)} training states the rule {request.rule} keeps none for this policy")
    origin = f"{request.folder} by {request.rule} with {request.saved}"
    manifest = write_subset(found, request.out, kept=[raw[place] for place in places], origin=origin)
    tries = sum(own.tries for own in goal)
    return Selected(
        manifest=manifest,
        asked=len(raw),
        kept=len(places),
        right=sum(own.right for own in goal) / tries if tries else 0.0,
    )


def _kept(
    request: SelectRequest, states: Sequence[RecordedState], goal: Sequence[Answered], told: Sequence[Answered]
) -> list[int]:
    match request.rule:
        case Rule.GUI_R1:
            return undecided(goal)
        case Rule.BOTTLENECK:
            return [place for place in bottlenecks(goal, told) if states[place].start.sub_goal]
        case Rule.UI_R1:
            ranked = [place for place in difficult(goal) if sound(states[place].start)]
            kinds = [state.kind for state in states]
            return diverse(ranked, kinds, size=request.size or _UI_R1_SIZE, mix=UI_R1_MIX)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asking:
    """Asks a policy at states, a block at a time."""

    request: SelectRequest
    runner: RolloutRunner
    progress: Told

    async def measured(self, states: Sequence[RecordedState]) -> list[Answered]:
        rule, wanted = self.request.rule, self.request.answers
        tries = wanted or (10 if rule is Rule.GUI_R1 else 1)
        groups = self.runner.groups
        sampling = groups.episodes.sampling
        if tries == 1:
            sampling = replace(sampling, temperature=0.0)
        runner = replace(self.runner, groups=replace(groups, episodes=replace(groups.episodes, sampling=sampling)))
        plans = (_plan(state, number, tries=tries) for number, state in enumerate(states))
        found: list[Answered] = []
        while block := list(islice(plans, _BLOCK)):
            found += [_answered(group) for group in await runner.round(block)]
            self.progress(len(found), len(states))
        return found


def _plan(state: RecordedState, number: int, *, tries: int) -> RolloutPlan:
    return RolloutPlan(
        group_id=GroupId(f"select/{number}"),
        task=state.task,
        start=state.start,
        group_size=tries,
        depth=1,
        purpose=Purpose.REESTIMATE,
        seed=number,
    )


def _answered(group: ScoredGroup) -> Answered:
    counted = [member for member in group.members if RULES[member.outcome].in_success_rate]
    lengths = [turn.completion.token_ids.shape[0] for member in counted for turn in member.trajectory.turns]
    return Answered(
        right=sum(member.outcome is Outcome.SUCCESS for member in counted),
        tries=len(counted),
        tokens=float(np.mean(lengths)) if lengths else 0.0,
    )
