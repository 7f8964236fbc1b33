"""Any Cairn environment as a Gymnasium environment.

Gymnasium is synchronous and one environment is one episode at a time, so this is for trying things out, for other
people's algorithms and for their tools; training goes through the sessions themselves.
"""

import difflib
import io
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from PIL import Image

from cairn.data.action import Action, Answer, Finish
from cairn.data.ids import TemplateId
from cairn.data.observation import Element, Observation
from cairn.data.task import Root, Split, Task, Template
from cairn.data.trajectory import Evidence
from cairn.errors import ConfigError
from cairn.gym.actions import CHARACTERS, GymAction, action_space, from_action, to_action
from cairn.gym.loop_thread import LoopThread
from cairn.ports import BlobStore, Environment, ExpertSession, Session, Step

GymObservation: TypeAlias = dict[str, Any]  # text, and where asked for the screenshot: uint8[height, width, 3]

_TASKS_PER_SPLIT = 1_000_000


def raw_success(evidence: Evidence) -> float:
    """1 where the environment's own reward is 1, else 0."""
    return float(evidence.raw_reward == 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class GymOptions:
    """How large the spaces are (Gymnasium wants every length bounded; what is longer is cut), and how it is judged."""

    screen: tuple[int, int] | None = None  # width and height of the screenshots; None: text alone
    max_elements: int = 200
    max_page: int = 8_000  # characters
    max_goal: int = 1_000
    max_typed: int = 100
    judge: Callable[[Evidence], float] = field(default=raw_success)
    patience_s: float = 60.0  # for any single call


_DEFAULTS = GymOptions()


class CairnEnv(gymnasium.Env[GymObservation, GymAction]):
    """One template of a Cairn environment: `reset(seed=s)` always opens the same task.

    The environment is made by `open_environment` on the wrapper's own event loop and belongs to the wrapper. The
    reward is `options.judge` of the final evidence, at the end or at the template's turn limit, and 0 before. Pass
    `blobs`, the store that the environment writes screenshots to, with `options.screen` to be shown them.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012 (Gymnasium's own declaration, which it never changes)
        "render_modes": ["rgb_array"],
        "render_fps": 1,
    }

    def __init__(
        self,
        open_environment: Callable[[], Environment],
        template: TemplateId | str,
        *,
        split: Split = Split.TRAIN,
        blobs: BlobStore | None = None,
        options: GymOptions = _DEFAULTS,
        render_mode: str | None = None,
    ) -> None:
        if options.screen is not None and blobs is None:
            raise ConfigError("screenshots need the blob store that the environment writes them to: pass blobs=")
        self.render_mode = render_mode
        self.observation_space = _observation_space(options)
        self.action_space = action_space(max_elements=options.max_elements, max_typed=options.max_typed)
        self._split = split
        self._blobs = blobs
        self._options = options
        self._session: Session | None = None
        self._seen: Observation | None = None
        self._turns = 0
        self._loop = LoopThread(patience_s=options.patience_s)
        try:
            self._environment = self._loop.run("making the environment", _made(open_environment))
            self._template = _find(self._environment, template)
        except BaseException:
            self._loop.close()
            raise

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[GymObservation, dict[str, Any]]:
        """Open the next task; `options={"index": i}` opens the i-th of the split."""
        if self._loop.closed:
            raise gymnasium.error.ClosedEnvironmentError("the environment is closed: make a new one")
        super().reset(seed=seed)
        drawn = int(self.np_random.integers(_TASKS_PER_SPLIT))
        task = Task(template=self._template, split=self._split, index=int((options or {}).get("index", drawn)))
        self._end_episode()
        self._session = self._loop.run(f"opening {task.id}", self._environment.open(task, start=Root()))
        self._turns = 0
        return self._look(self._session), {"goal": self._session.goal, "task": task.id, "message": ""}

    def step(self, action: GymAction) -> tuple[GymObservation, float, bool, bool, dict[str, Any]]:
        """Perform one action."""
        session = self._session
        if session is None:
            raise gymnasium.error.ResetNeeded("the episode is over, or none was begun: call reset()")
        done = to_action(action)
        step: Step = self._loop.run("acting", session.act(done))
        self._turns += 1
        shown = self._look(session)
        terminated = step.done or isinstance(done, Answer | Finish)
        truncated = not terminated and self._turns >= self._template.max_turns
        info: dict[str, Any] = {"goal": session.goal, "message": step.message}
        reward = 0.0
        if terminated or truncated:
            reward = self._options.judge(self._loop.run("judging", session.evidence()))
            info["success"] = reward == 1
            self._end_episode()
        return shown, reward, terminated, truncated, info

    def render(self) -> npt.NDArray[np.uint8] | None:
        """The newest screenshot, where there are any."""
        return self._pixels() if self.render_mode == "rgb_array" else None

    def close(self) -> None:
        """Close the session, the environment and the loop. Idempotent."""
        if self._loop.closed:
            return
        try:
            self._end_episode()
            self._loop.run("closing the environment", self._environment.close())
        finally:
            self._loop.close()

    def expert_action(self) -> GymAction | None:
        """What the environment's expert would do now; None where it has none."""
        if self._session is None or not self._environment.has_expert(self._template):
            return None
        action = self._loop.run("asking the expert", _asked(self._session))
        return None if action is None else from_action(action)

    def _end_episode(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            self._loop.run("closing the session", session.close())

    def _look(self, session: Session) -> GymObservation:
        self._seen = self._loop.run("observing", session.observe())
        shown: GymObservation = {
            "goal": _cut(session.goal, self._options.max_goal),
            "page": _cut(page_text(self._seen), self._options.max_page),
        }
        if self._options.screen is not None:
            shown["screenshot"] = self._pixels()
        return shown

    def _pixels(self) -> npt.NDArray[np.uint8]:
        if self._seen is None or self._seen.image is None or self._blobs is None:
            raise ConfigError("there is no screenshot: the environment takes none, or blobs= was not given")
        with Image.open(io.BytesIO(self._blobs.get(self._seen.image))) as image:
            if self._options.screen not in (None, image.size):
                raise ConfigError(f"the screenshot is {image.size}, but options.screen says {self._options.screen}")
            return np.array(image.convert("RGB"), np.uint8)


def page_text(seen: Observation) -> str:
    """The page, one element a line, and before it what the last action came to."""
    lines = [seen.message] if seen.message else []
    return "\n".join([*lines, *map(_line, seen.elements)])


def _line(element: Element) -> str:
    value = f" = {element.value!r}" if element.value else ""
    states = f" ({', '.join(element.states)})" if element.states else ""
    return f"[{element.id}] {element.role} {element.label!r}{value}{states}"


def _cut(text: str, limit: int) -> str:
    return "".join(c if c in CHARACTERS else "?" for c in text[:limit])


def _observation_space(options: GymOptions) -> spaces.Dict:
    parts: dict[str, spaces.Space[Any]] = {
        "goal": spaces.Text(options.max_goal, min_length=0, charset=CHARACTERS),
        "page": spaces.Text(options.max_page, min_length=0, charset=CHARACTERS),
    }
    if options.screen is not None:
        width, height = options.screen
        parts["screenshot"] = spaces.Box(0, 255, (height, width, 3), np.uint8)
    return spaces.Dict(parts)


def _find(environment: Environment, wanted: str) -> Template:
    known = {template.id: template for template in environment.templates}
    if wanted in known:
        return known[TemplateId(wanted)]
    near = difflib.get_close_matches(wanted, known, n=1) or list(known)[:1]
    raise ConfigError(f"{environment.name} has no template {wanted!r}; did you mean {near}?")


async def _made(open_environment: Callable[[], Environment]) -> Environment:
    return open_environment()


async def _asked(session: Session) -> Action | None:
    return await session.expert_action() if isinstance(session, ExpertSession) else None
