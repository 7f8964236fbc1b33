"""The same actions in Cairn and in miniwob's own environment: does the page judge them the same way?"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from cairn.bench.competitors import Competitor, Contender, play_elsewhere
from cairn.bench.traces import Trace, play, record, spoiled
from cairn.data.task import Split, Task
from cairn.errors import ConfigError
from cairn.ports import Environment

# Tasks whose outcome follows from the actions alone. Left out: those that a running clock changes, native drop-downs
# (their pop-up belongs to the window system), and those that scroll (the other window has another height).
DIFFERENTIAL_TASKS = (
    "ascending-numbers", "buy-ticket", "choose-date-easy", "click-button", "click-button-sequence", "click-checkboxes",
    "click-checkboxes-large", "click-checkboxes-soft", "click-checkboxes-transfer", "click-collapsible-2-nodelay",
    "click-collapsible-nodelay", "click-color", "click-dialog", "click-link", "click-option", "click-shades",
    "click-shape", "click-tab", "click-tab-2", "click-tab-2-hard", "click-test", "click-test-2", "click-widget",
    "copy-paste", "count-shape", "drag-box", "enter-password", "enter-text", "enter-text-2", "enter-text-dynamic",
    "find-greatest", "find-word", "focus-text", "focus-text-2", "form-sequence-2", "generate-number", "grid-coordinate",
    "guess-number", "identify-shape", "login-user", "login-user-popup", "multi-layouts", "multi-orderings",
    "navigate-tree", "number-checkboxes", "odd-or-even", "read-table", "read-table-2", "search-engine",
    "simple-algebra", "simple-arithmetic", "text-transform", "unicode-test", "use-autocomplete-nodelay", "use-spinner",
    "visual-addition",
)  # fmt: skip
_WAIT_MS = 300.0  # that environment does not wait for the page to settle


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One sequence of actions in both environments. Rewards are the page's own, undiminished by its clock."""

    task: Task
    spoiled: bool  # one action of the expert's was replaced by a click elsewhere
    goals_agree: bool
    ours: Trace
    their_done: bool
    their_reward: float

    @property
    def their_success(self) -> bool:
        """Whether the page was fully satisfied there."""
        return self.their_done and self.their_reward == 1.0

    @property
    def agrees(self) -> bool:
        """The same instance was judged the same way."""
        return self.goals_agree and self.ours.success == self.their_success

    @property
    def rewards_agree(self) -> bool:
        """Even the reward of a failure is the same."""
        return self.ours.done == self.their_done and abs(self.ours.reward - self.their_reward) < 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Differential:
    """All comparisons."""

    comparisons: tuple[Comparison, ...]

    @property
    def disagreements(self) -> tuple[Comparison, ...]:
        """Where the two do not agree on success."""
        return tuple(c for c in self.comparisons if not c.agrees)


async def compare(
    environment: Environment,
    *,
    tasks: Sequence[str] = DIFFERENTIAL_TASKS,
    seeds: int = 5,
    python: Path | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Differential:
    """Play the expert's actions, and a spoiled variant, on `seeds` held-out instances of each task in both."""
    templates = {template.id.partition("/")[2]: template for template in environment.templates}
    unknown = [name for name in tasks if name not in templates]
    if unknown:
        raise ConfigError(f"no such tasks: {', '.join(unknown)}")
    competitor = await Competitor.start(Contender.SELENIUM, python=python)
    comparisons: list[Comparison] = []
    try:
        for name in tasks:
            progress(name)
            for index in range(seeds):
                task = Task(template=templates[name], split=Split.HELD_OUT, index=index)
                comparisons += await _compare_one(environment, competitor, task)
    finally:
        await competitor.close()
    return Differential(comparisons=tuple(comparisons))


async def _compare_one(environment: Environment, competitor: Competitor, task: Task) -> tuple[Comparison, Comparison]:
    expert = await record(environment, task)
    wrong = await play(environment, spoiled(expert))
    return (
        await _elsewhere(competitor, expert, wrong=False),
        await _elsewhere(competitor, wrong, wrong=True),
    )


async def _elsewhere(competitor: Competitor, ours: Trace, *, wrong: bool) -> Comparison:
    played = await play_elsewhere(competitor, ours, wait_ms=_WAIT_MS)
    return Comparison(
        task=ours.task,
        spoiled=wrong,
        goals_agree=played.goal == ours.goal,
        ours=ours,
        their_done=played.done,
        their_reward=played.reward,
    )


def differential_table(result: Differential) -> Table:
    """Agreement by task."""
    table = Table(title="the same actions in Cairn and in miniwob's own environment")
    for column in ("task", "comparisons", "success agrees", "reward agrees", "expert succeeds here", "and there"):
        table.add_column(column, justify="left" if column == "task" else "right")
    names = dict.fromkeys(c.task.template.id for c in result.comparisons)
    for name in names:
        mine = [c for c in result.comparisons if c.task.template.id == name]
        expert = [c for c in mine if not c.spoiled]
        table.add_row(
            name,
            str(len(mine)),
            str(sum(c.agrees for c in mine)),
            str(sum(c.rewards_agree for c in mine)),
            f"{sum(c.ours.success for c in expert)}/{len(expert)}",
            f"{sum(c.their_success for c in expert)}/{len(expert)}",
        )
    return table
