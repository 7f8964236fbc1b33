"""What is checked of each template of an environment."""

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import numpy as np

from cairn.data.action import Action, Click, Invalid, Type
from cairn.data.ids import ElementId
from cairn.data.observation import Observation
from cairn.data.task import Split, Task, Template
from cairn.data.trajectory import Evidence
from cairn.ports import BlobStore, Environment
from cairn.testing.agents import Agent, ExpertAgent, NoopAgent, RandomAgent, ReplayAgent
from cairn.testing.environment_report import Check, Finding, Verdict
from cairn.testing.playing import Call, Played, Player

_NOWHERE = ElementId(99_999)
_IMPOSSIBLE: tuple[Action, ...] = (
    Click(_NOWHERE),
    Type("nothing", _NOWHERE),
    Invalid("?", "this is no action"),
)


def raw_reward_is_one(evidence: Evidence) -> bool:
    """The usual sign of success."""
    return evidence.raw_reward == 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions:
    """What to check, and how strictly."""

    templates: tuple[Template, ...] | None = None  # None: all of the environment's
    indices: tuple[int, ...] = (0, 1, 2)  # which training tasks of each template; at least two
    random_turns: int = 6  # how long the random agent plays, at most the template's own limit
    expert_bound: float = 0.95  # an expert below fails
    noop_bound: float = 0.0  # a no-op agent above fails
    random_bound: float = 0.5  # a random agent above is a warning: some pages have one button
    patience_s: float = 30.0  # for any single call
    leak_patience_s: float = 3.0  # for processes that are going already when the environment has closed
    succeeded: Callable[[Evidence], bool] = field(default=raw_reward_is_one)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What every check works with."""

    environment: Environment
    options: CheckOptions
    player: Player
    blobs: BlobStore | None

    def tasks(self, template: Template) -> list[Task]:
        """The template's tasks to check."""
        return [Task(template=template, split=Split.TRAIN, index=i) for i in self.options.indices]

    async def random_episode(self, task: Task) -> Played:
        """An episode of the random agent, the same at every call as far as the environment is."""
        agent = RandomAgent(rng=np.random.default_rng(task.index))
        turns = min(self.options.random_turns, task.template.max_turns)
        return await self.player.play(task, agent, max_turns=turns)


TemplateCheck = Callable[[Bench, Template], Awaitable[Finding]]

_PASS = Finding(verdict=Verdict.OK)


def _fail(reason: str) -> Finding:
    return Finding(verdict=Verdict.FAIL, reason=reason)


async def _purity(bench: Bench, template: Template) -> Finding:
    first, other, *_ = bench.tasks(template)

    async def opened() -> tuple[str, Observation]:
        async with bench.player.session(first) as session:
            return session.goal, await bench.player.look(session, first)

    goal, seen = await opened()
    await bench.random_episode(other)
    goal_again, again = await opened()
    differing = [
        name
        for name, same in (
            ("goal", goal == goal_again),
            ("digest", seen.digest == again.digest),
            ("elements", seen.elements == again.elements),
            ("screenshot", seen.image == again.image),
            ("accessibility tree", seen.accessibility == again.accessibility),
        )
        if not same
    ]
    return _fail(f"{first.id} opened twice differs in {', '.join(differing)}") if differing else _PASS


async def _determinism(bench: Bench, template: Template) -> Finding:
    for task in bench.tasks(template)[:2]:
        original = await bench.random_episode(task)
        replayed = await bench.player.play(task, ReplayAgent(actions=original.actions), max_turns=template.max_turns)
        if replayed.digests != original.digests:
            pairs = zip(original.digests, replayed.digests, strict=False)
            turn = next((i for i, (a, b) in enumerate(pairs) if a != b), len(replayed.digests))
            return _fail(f"{task.id}: the same actions led to another state after {turn} of {len(original.actions)}")
        if replayed.steps != original.steps or _judged(replayed) != _judged(original):
            return _fail(f"{task.id}: the same actions ended otherwise")
        if [s.image for s in replayed.seen] != [s.image for s in original.seen]:
            return Finding(verdict=Verdict.WARN, reason=f"{task.id}: equal states, but another screenshot")
    return _PASS


def _judged(played: Played) -> tuple[bool, float]:
    return played.evidence.done, played.evidence.raw_reward


async def _seeds(bench: Bench, template: Template) -> Finding:
    openings: set[tuple[str, str, str | None]] = set()
    for task in bench.tasks(template):
        async with bench.player.session(task) as session:
            seen = await bench.player.look(session, task)
            openings.add((session.goal, seen.digest, seen.image))
    if len(openings) > 1:
        return _PASS
    count = len(bench.options.indices)
    return Finding(verdict=Verdict.WARN, reason=f"{count} seeds opened one and the same episode")


async def _observation(bench: Bench, template: Template) -> Finding:
    task = bench.tasks(template)[0]
    async with bench.player.session(task) as session:
        seen = await bench.player.look(session, task)
        again = await bench.player.look(session, task)
    if (wrong := _malformed(seen)) is not None:
        return _fail(wrong)
    if bench.blobs is not None and seen.image is not None and not bench.blobs.get(seen.image):
        return _fail(f"screenshot {seen.image} is empty")
    if seen.digest != again.digest:
        return Finding(verdict=Verdict.WARN, reason="the page changes by itself between two looks")
    return _PASS


def _malformed(seen: Observation) -> str | None:
    if not seen.digest:
        return "the digest is empty"
    if [e.id for e in seen.elements] != list(range(1, len(seen.elements) + 1)):
        return "element ids do not count from 1 in order"
    for element in seen.elements:
        box = element.box
        if not all(map(math.isfinite, (box.left, box.top, box.width, box.height))) or min(box.width, box.height) < 0:
            return f"element {element.id} ({element.role} {element.label!r}) has no proper box: {box}"
        if element.states != tuple(sorted(element.states)):
            return f"element {element.id} ({element.role} {element.label!r}): its states are not sorted"
    return None


async def _impossible(bench: Bench, template: Template) -> Finding:
    task = bench.tasks(template)[0]
    async with bench.player.session(task) as session:
        before = await bench.player.look(session, task)
        for action in _IMPOSSIBLE:
            step = await bench.player.timed(Call.ACT, task.id, session.act(action))
            if step.done or not step.message:
                return _fail(f"{action} is impossible, yet came to {step}")
        after = await bench.player.look(session, task)
    if after.digest != before.digest:
        return Finding(verdict=Verdict.WARN, reason="the page changed while only impossible actions were tried")
    return _PASS


async def _isolation(bench: Bench, template: Template) -> Finding:
    if bench.environment.capacity < 2:
        return Finding(verdict=Verdict.SKIP, reason="one session at a time")
    task = bench.tasks(template)[0]
    player = bench.player
    async with player.session(task) as quiet:
        before, still = await player.look(quiet, task), await player.look(quiet, task)
        if before.digest != still.digest:
            return Finding(verdict=Verdict.SKIP, reason="the page changes by itself")
        busy = await bench.random_episode(task)
        after = await player.look(quiet, task)
    if busy.seen[0].digest != before.digest:
        return _fail(f"{task.id} opened beside itself differs")
    return _PASS if after.digest == before.digest else _fail(f"{task.id} changed while another session was acted in")


async def _close(bench: Bench, template: Template) -> Finding:
    task = bench.tasks(template)[0]
    async with bench.player.session(task) as session:
        await bench.player.timed(Call.CLOSE, task.id, session.close())
    return _PASS


async def _success_rate(bench: Bench, template: Template, agent: Callable[[Task], Agent], turns: int) -> float:
    wins = 0
    for task in bench.tasks(template):
        played = await bench.player.play(task, agent(task), max_turns=turns)
        wins += bench.options.succeeded(played.evidence)
    return wins / len(bench.options.indices)


async def _expert(bench: Bench, template: Template) -> Finding:
    if not bench.environment.has_expert(template):
        return Finding(verdict=Verdict.SKIP, reason="no expert")
    rate = await _success_rate(bench, template, lambda _: ExpertAgent(), template.max_turns)
    bound = bench.options.expert_bound
    return _PASS if rate >= bound else _fail(f"the expert solved {rate:.0%}, below {bound:.0%}")


async def _noop(bench: Bench, template: Template) -> Finding:
    rate = await _success_rate(bench, template, lambda _: NoopAgent(), template.max_turns)
    bound = bench.options.noop_bound
    return _PASS if rate <= bound else _fail(f"doing nothing solved {rate:.0%}, above {bound:.0%}")


async def _random(bench: Bench, template: Template) -> Finding:
    turns = min(bench.options.random_turns, template.max_turns)
    rate = await _success_rate(
        bench, template, lambda task: RandomAgent(rng=np.random.default_rng([1, task.index])), turns
    )
    bound = bench.options.random_bound
    verdict = Verdict.OK if rate <= bound else Verdict.WARN
    return Finding(verdict=verdict, reason=f"blind clicking solved {rate:.0%}")


TEMPLATE_CHECKS: tuple[tuple[Check, TemplateCheck], ...] = (
    (Check.PURITY, _purity),
    (Check.DETERMINISM, _determinism),
    (Check.SEEDS, _seeds),
    (Check.OBSERVATION, _observation),
    (Check.IMPOSSIBLE, _impossible),
    (Check.ISOLATION, _isolation),
    (Check.CLOSE, _close),
    (Check.EXPERT, _expert),
    (Check.NOOP, _noop),
    (Check.RANDOM, _random),
)
