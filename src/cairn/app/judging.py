"""How far a judge agrees with the checkers of the environments, on what a run has stored."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cairn.algo.agreement import Agreement, agreement
from cairn.app.rewards import build_judge
from cairn.config.rewards import JudgeOptions
from cairn.data.ids import GroupId
from cairn.data.task import Purpose, Recorded
from cairn.data.trajectory import RULES, Outcome, ScoredTrajectory
from cairn.errors import ConfigError, VerifierError
from cairn.ports import Judge, Opinion
from cairn.rewards.judged import about_task
from cairn.rollout.unwrap import one_error
from cairn.rollout.waiting import bounded
from cairn.store.run import open_run

_SECONDS = 300.0  # for one opinion, tries included
_AT_ONCE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeRequest:
    """Whole episodes of a run to be judged again."""

    folder: Path
    judge: JudgeOptions
    least: float = 0.5  # the score from which an episode counts as a success
    limit: int | None = None  # episodes at most, drawn from all
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """An episode that judge and checker see differently."""

    group: GroupId
    sibling: int
    goal: str
    solved: bool  # by the checker
    score: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What came of it. Episodes that the judge failed on are counted and rated nowhere."""

    agreement: Agreement
    failed: int
    disagreements: tuple[Disagreement, ...]


async def compare(request: JudgeRequest) -> Comparison:
    """Judge the policy's episodes, demonstrations left out, and count how often the checker says the same."""
    judge = build_judge(request.judge, folder=request.folder)
    if judge is None:
        raise ConfigError("there is no judge: give --url and --model, or --offline, or set [reward.judge]")
    episodes = _drawn(list(_episodes(request.folder)), request)
    if not episodes:
        raise ConfigError(f"{request.folder} holds no whole episode of the policy to judge")
    places = asyncio.Semaphore(_AT_ONCE)
    with one_error():
        async with asyncio.TaskGroup() as tasks:
            asked = [tasks.create_task(_opinion(judge, episode, places)) for episode in episodes]
    opinions = [task.result() for task in asked]
    rated = [(e, o) for e, o in zip(episodes, opinions, strict=True) if isinstance(o, Opinion)]
    if not rated:
        raise next(o for o in opinions if isinstance(o, VerifierError))
    judged = [opinion.score >= request.least for _, opinion in rated]
    checked = [episode.outcome is Outcome.SUCCESS for episode, _ in rated]
    return Comparison(
        agreement=agreement(judged, checked),
        failed=len(episodes) - len(rated),
        disagreements=tuple(
            _disagreement(*one) for one, said, is_so in zip(rated, judged, checked, strict=True) if said != is_so
        ),
    )


async def _opinion(judge: Judge, episode: ScoredTrajectory, places: asyncio.Semaphore) -> Opinion | VerifierError:
    async with places:
        try:
            async with bounded(VerifierError, f"judge {episode.trajectory.plan.group_id}", seconds=_SECONDS):
                return await judge.judge(about_task(episode.trajectory))
        except VerifierError as error:
            return error


def _episodes(folder: Path) -> Iterator[ScoredTrajectory]:
    """Those that a checker has seen and the policy has played."""
    for group in open_run(folder):
        if group.plan.purpose is Purpose.DEMONSTRATE or isinstance(group.plan.start, Recorded):
            continue
        yield from (m for m in group.members if m.trajectory.turns and RULES[m.outcome].in_success_rate)


def _drawn(episodes: Sequence[ScoredTrajectory], request: JudgeRequest) -> Sequence[ScoredTrajectory]:
    if request.limit is None or len(episodes) <= request.limit:
        return episodes
    drawn = np.random.default_rng(request.seed).choice(len(episodes), size=request.limit, replace=False)
    return [episodes[int(place)] for place in np.sort(drawn)]


def _disagreement(episode: ScoredTrajectory, opinion: Opinion) -> Disagreement:
    trajectory = episode.trajectory
    return Disagreement(
        group=trajectory.plan.group_id,
        sibling=trajectory.sibling,
        goal=trajectory.goal,
        solved=episode.outcome is Outcome.SUCCESS,
        score=opinion.score,
        reason=opinion.reason,
    )
