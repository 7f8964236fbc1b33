"""How often the scripted experts succeed, and in how many steps: the table of docs/experts.md."""

import asyncio
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cairn.data.task import Root, Split, Task, Template
from cairn.errors import BoundaryError, ConfigError
from cairn.ports import Environment, ExpertSession
from cairn.rollout.unwrap import one_error

_ATTEMPTS = 3  # a dead browser says nothing about an expert


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertEpisode:
    """One episode that an expert played."""

    success: bool
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertScore:
    """One task's episodes, on the first held-out seeds."""

    template: Template
    episodes: tuple[ExpertEpisode, ...]
    lost: int  # attempts that failed outside and were repeated

    @property
    def successes(self) -> int:
        """How many episodes the page was fully satisfied with."""
        return sum(episode.success for episode in self.episodes)

    @property
    def steps(self) -> tuple[int, ...]:
        """Of the successes."""
        return tuple(episode.steps for episode in self.episodes if episode.success)


async def measure_experts(
    environment: Environment,
    *,
    seeds: int = 20,
    tasks: Sequence[str] | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[ExpertScore, ...]:
    """Let every expert (of `tasks`, by name) play its first held-out seeds; in the order of the templates."""
    templates = [
        template
        for template in environment.templates
        if environment.has_expert(template) and (tasks is None or template.id.partition("/")[2] in tasks)
    ]
    unknown = set(tasks or ()) - {template.id.partition("/")[2] for template in templates}
    if unknown:
        raise ConfigError(f"{environment.name} has no expert for {', '.join(sorted(unknown))}")
    places = asyncio.Semaphore(environment.capacity)
    scores: dict[str, ExpertScore] = {}

    async def measure(template: Template) -> None:
        async with places:
            scores[template.id] = score = await _score(environment, template, seeds)
            progress(f"{template.id}: {score.successes} of {seeds}")

    with one_error():
        async with asyncio.TaskGroup() as group:
            for template in templates:
                group.create_task(measure(template))
    return tuple(scores[template.id] for template in templates)


async def _score(environment: Environment, template: Template, seeds: int) -> ExpertScore:
    episodes: list[ExpertEpisode] = []
    lost = 0
    for index in range(seeds):
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                task = Task(template=template, split=Split.HELD_OUT, index=index)
                episodes.append(await _play(environment, task))
                break
            except BoundaryError:
                lost += 1
                if attempt == _ATTEMPTS:
                    raise
    return ExpertScore(template=template, episodes=tuple(episodes), lost=lost)


async def _play(environment: Environment, task: Task) -> ExpertEpisode:
    session = await environment.open(task, start=Root())
    try:
        if not isinstance(session, ExpertSession):
            raise ConfigError(f"{task.id}: the environment has no scripted expert")
        steps = 0
        for _ in range(task.template.max_turns):
            await session.observe()
            action = await session.expert_action()
            if action is None:
                break
            steps += 1
            if (await session.act(action)).done:
                break
        evidence = await session.evidence()
        return ExpertEpisode(success=evidence.done and evidence.raw_reward == 1.0, steps=steps)
    finally:
        await session.close()


def experts_page(scores: Sequence[ExpertScore], *, day: str, browser: str) -> str:
    """The page docs/experts.md."""
    seeds = len(scores[0].episodes)
    sure = sum(score.successes >= 0.95 * seeds for score in scores)
    lines = [
        "# The scripted experts of MiniWoB++",
        "",
        "An expert looks at the page and the goal and returns one action at a time; it keeps nothing that the page has",
        "not shown. Where a page shows something as a picture only, or asks for knowledge of words (number-checkboxes,",
        "click-shades, click-checkboxes-soft), it reads the page's own table. Tabs, sections and cards are searched in",
        "the order of the page, as a person would. Experts give demonstrations and serve tests; they are no part of a",
        "trained policy.",
        "",
        f"{len(scores)} tasks have an expert; {sure} of them solve at least 95 % of their first {seeds} held-out seeds",
        f"within the task's turn limit. Measured on {day} with {browser}; `cairn bench experts` writes this page.",
        "",
        "| task | solved | mean steps | most steps | turn limit |",
        "|---|---|---|---|---|",
    ]
    for score in scores:
        name = score.template.id.partition("/")[2]
        mean = f"{statistics.mean(score.steps):.1f}" if score.steps else "-"
        most = str(max(score.steps, default="-"))
        lines.append(f"| {name} | {score.successes}/{seeds} | {mean} | {most} | {score.template.max_turns} |")
    return "\n".join([*lines, ""])
