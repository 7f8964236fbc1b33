"""BrowserGym's MiniWoB++ as shipped, behind a pipe; the protocol is that of `selenium_worker.py`.

Only two things are changed: Debian's Chromium is used, and the task gets its seed as the page's own, so that the
recorded actions fit. Its delays, its slow motion and its chat window are left as they are.
"""

import json
import logging
import os
import shutil
import sys
import time
from pathlib import Path

import gymnasium
import miniwob
from browsergym.core.action.highlevel import HighLevelActionSet
from browsergym.miniwob.base import AbstractMiniwobTask
from playwright.sync_api import BrowserType

_setup = AbstractMiniwobTask.setup
_launch = BrowserType.launch


class _Given:
    """Stands where the task draws the page's seed."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def randint(self, *_: int) -> int:
        return self._seed


class Worker:
    """At most one environment at a time."""

    def __init__(self) -> None:
        self._env: gymnasium.Env | None = None
        self._task = ""
        self._actions = HighLevelActionSet(subsets=["coord"])

    def open(self, task: str, seed: int) -> dict:
        """Reset to `seed`; every reset starts a browser, as the environment has it."""
        if self._task != task:
            self.close()
            name = f"browsergym/miniwob.{task}"
            self._env = gymnasium.make(name, action_mapping=self._actions.to_python_code, disable_env_checker=True)
            self._task = task
        begun = time.perf_counter()

        def setup(told: AbstractMiniwobTask, page: object) -> tuple[str, dict]:
            told.random = _Given(seed)
            return _setup(told, page)

        AbstractMiniwobTask.setup = setup
        observation, _ = self._env.reset(seed=seed)
        return {"goal": observation["goal"], "started": False, "seconds": time.perf_counter() - begun}

    def act(self, action: dict) -> dict:
        """One step of the environment, with its screenshot."""
        begun = time.perf_counter()
        page = self._env.unwrapped.page
        _, reward, done, _, _ = self._env.step(_code(action, page._bgym_scale_factor))  # noqa: SLF001 - its own scale
        return {"done": bool(done), "reward": float(reward), "seconds": time.perf_counter() - begun}

    def close(self) -> None:
        """End the browsers."""
        if self._env is not None:
            self._env.close()
            self._env, self._task = None, ""


def _code(action: dict, scale: float) -> str:
    x, y = action.get("x", 0) * scale, action.get("y", 0) * scale
    match action["kind"]:
        case "click":
            code = f"mouse_click({x}, {y})"
        case "hover":
            code = f"mouse_move({x}, {y})"
        case "drag":
            code = f"mouse_drag_and_drop({x}, {y}, {action['x2'] * scale}, {action['y2'] * scale})"
        case "type":
            typed = f"keyboard_type({json.dumps(action['text'], ensure_ascii=False)})"
            code = f"mouse_click({x}, {y})\nkeyboard_press('Control+a')\n{typed}"
        case "key":
            code = f"keyboard_press({action['keys']!r})"
        case "scroll":
            code = f"mouse_move({x}, {y})\nscroll(0, {action['dy']})"
        case "wait":
            code = f"noop({1000 * action['seconds']})"
        case other:
            raise ValueError(f"unknown action {other!r}")
    return code


def main() -> None:
    """Answer requests until the pipe closes. Whatever libraries print goes to the error stream."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    logging.disable(logging.CRITICAL)
    os.environ["MINIWOB_URL"] = (Path(miniwob.__file__).parent / "html" / "miniwob").as_uri() + "/"
    chromium = shutil.which("chromium")
    BrowserType.launch = lambda told, **options: _launch(told, **{"executable_path": chromium, **options})
    worker = Worker()
    try:
        for line in sys.stdin:
            answers.write(json.dumps(_answer(worker, json.loads(line))) + "\n")
    finally:
        worker.close()


def _answer(worker: Worker, request: dict) -> dict:
    try:
        match request["op"]:
            case "open":
                return worker.open(request["task"], request["seed"])
            case "act":
                return worker.act(request["action"])
            case _:
                worker.close()
                return {}
    except Exception as error:  # noqa: BLE001 - the parent decides what a failure of the other side means
        return {"error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    main()
