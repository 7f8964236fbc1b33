"""Recorded actions in screen coordinates, which any environment of the same pages can perform."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from cairn.data.action import (
    Action,
    Click,
    DoubleClick,
    Drag,
    Hover,
    Key,
    LongPress,
    Point,
    RightClick,
    Scroll,
    Target,
    Type,
    Wait,
)
from cairn.data.observation import Observation
from cairn.data.task import Root, Task
from cairn.envs.miniwob.pages import HEIGHT, WIDTH
from cairn.errors import ConfigError
from cairn.ports import ExpertSession, SessionFactory

_MIDDLE = Point(0.5, 0.5)
_ROUNDING = 1e-6  # of a pixel


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """An episode that can be played again: what was done, and how it came out."""

    task: Task
    goal: str
    actions: tuple[Action, ...]  # targets are points
    done: bool
    reward: float  # the page's own, undiminished by its clock; 0 while the episode runs

    @property
    def success(self) -> bool:
        """Whether the page was fully satisfied."""
        return self.done and self.reward == 1.0


async def record(factory: SessionFactory, task: Task) -> Trace:
    """Let the scripted expert solve `task`, by points alone. Raises `ConfigError` where there is no expert."""
    session = await factory.open(task, start=Root())
    try:
        if not isinstance(session, ExpertSession):
            raise ConfigError(f"{task.id}: the environment has no scripted expert")
        actions: list[Action] = []
        for _ in range(task.template.max_turns):
            seen = await session.observe()
            action = await session.expert_action()
            if action is None:
                break
            actions.append(placed(action, seen))
            if (await session.act(actions[-1])).done:
                break
        evidence = await session.evidence()
        return Trace(
            task=task, goal=session.goal, actions=tuple(actions), done=evidence.done, reward=evidence.raw_reward
        )
    finally:
        await session.close()


async def play(factory: SessionFactory, trace: Trace) -> Trace:
    """Do the trace's actions on a fresh session; the result holds those that were performed."""
    session = await factory.open(trace.task, start=Root())
    try:
        performed: list[Action] = []
        for action in trace.actions:
            performed.append(action)
            if (await session.act(action)).done:
                break
        evidence = await session.evidence()
        return replace(
            trace, goal=session.goal, actions=tuple(performed), done=evidence.done, reward=evidence.raw_reward
        )
    finally:
        await session.close()


def spoiled(trace: Trace) -> Trace:
    """The trace with one action replaced by a click elsewhere; which one follows from the seed."""
    spot = trace.task.seed % len(trace.actions)
    point = _point_of(trace.actions[spot])
    elsewhere = Click(_on_pixel(Point(1.0 - point.x, min(0.95, max(0.3, 1.25 - point.y)))))
    actions = (*trace.actions[:spot], elsewhere, *trace.actions[spot + 1 :])
    return replace(trace, actions=actions)


def placed(action: Action, seen: Observation) -> Action:
    """The same action at the middles of the elements that it names, in whole pixels."""

    def at(target: Target) -> Point:
        if isinstance(target, Point):
            return _on_pixel(target)
        element = seen.element(target)
        if element is None:
            raise ConfigError(f"the expert named element {target}, which was not shown")
        return _on_pixel(element.box.center)

    match action:
        case Click() | DoubleClick() | RightClick() | LongPress() | Hover():
            return type(action)(at(action.target))
        case Drag():
            return Drag(at(action.source), at(action.target))
        case Scroll():
            return Scroll(_MIDDLE if action.target is None else at(action.target), action.dx, action.dy)
        case Type():
            return action if action.target is None else Type(action.text, at(action.target))
        case _:
            return action


def wire(action: Action) -> Mapping[str, str | float]:
    """A placed action for another environment: JSON, in CSS pixels of the 160 x 210 screen."""
    match action:
        case Click(Point() as point) | Hover(Point() as point):
            return {"kind": type(action).__name__.lower(), **_xy(point)}
        case Drag(Point() as source, Point() as target):
            return {"kind": "drag", **_xy(source), "x2": round(target.x * WIDTH, 3), "y2": round(target.y * HEIGHT, 3)}
        case Scroll(Point() as point, _, dy):
            return {"kind": "scroll", **_xy(point), "dy": dy * HEIGHT}
        case Type(text, Point() as point):
            return {"kind": "type", **_xy(point), "text": text}
        case Key() | Wait():
            return {"kind": type(action).__name__.lower(), **asdict(action)}
        case _:
            raise ConfigError(f"{action} cannot be played in another environment")


def _on_pixel(point: Point) -> Point:
    """The whole pixel that holds the point: not every driver knows halves."""
    x, y = int(point.x * WIDTH + _ROUNDING), int(point.y * HEIGHT + _ROUNDING)
    return Point(min(WIDTH - 1, x) / WIDTH, min(HEIGHT - 1, y) / HEIGHT)


def _xy(point: Point) -> Mapping[str, float]:
    return {"x": round(point.x * WIDTH, 3), "y": round(point.y * HEIGHT, 3)}


def _point_of(action: Action) -> Point:
    match action:
        case Click(Point() as point) | Hover(Point() as point) | Type(_, Point() as point) | Drag(Point() as point, _):
            return point
        case _:
            return _MIDDLE
