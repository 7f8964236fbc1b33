"""miniwob's own Selenium environment behind a pipe: one JSON request a line in, one JSON answer a line out.

Runs in the benchmark's virtual environment, by path, and so imports nothing of Cairn.

    {"op": "open", "task", "seed", "wait_ms"}   -> {"goal", "started"}     started: a browser had to be started
    {"op": "act", "action": {"kind", …}}        -> {"done", "reward", "seconds"}
    {"op": "close"}                             -> {}
"""

import json
import logging
import os
import shutil
import sys
import time

import numpy as np
from miniwob import selenium_actions
from miniwob.action import ActionTypes
from miniwob.environment import MiniWoBEnvironment

_NEUTRAL = {"ref": 0, "key": 0, "text": "", "field": 0}
_DRAG_STEPS = 5


class Worker:
    """At most one environment at a time; another task means another browser, as the environment has it."""

    def __init__(self) -> None:
        self._env: MiniWoBEnvironment | None = None
        self._opened = ("", 0.0)

    def open(self, task: str, seed: int, wait_ms: float) -> dict:
        """Reset to `seed`; starts a browser where the task is another one than before."""
        started = self._env is None or self._opened != (task, wait_ms)
        if started:
            self.close()
            self._env = MiniWoBEnvironment(subdomain=task, wait_ms=wait_ms)
            self._opened = (task, wait_ms)
        begun = time.perf_counter()
        observation, _ = self._env.reset(seed=seed)
        return {"goal": observation["utterance"], "started": started, "seconds": time.perf_counter() - begun}

    def act(self, action: dict) -> dict:
        """One step of the environment, with its screenshot. What needs more than a step is prepared without one."""
        begun = time.perf_counter()
        driver = self._env.instance.driver
        match action["kind"]:
            case "click":
                kind, more = ActionTypes.CLICK_COORDS, self._at(action["x"], action["y"])
            case "hover":
                kind, more = ActionTypes.MOVE_COORDS, self._at(action["x"], action["y"])
            case "drag":
                selenium_actions.execute_mousedown_coords(action["x"], action["y"], driver)
                for step in range(1, _DRAG_STEPS + 1):
                    share = step / _DRAG_STEPS
                    x = action["x"] + (action["x2"] - action["x"]) * share
                    y = action["y"] + (action["y2"] - action["y"]) * share
                    selenium_actions.execute_move_coords(x, y, driver)
                kind, more = ActionTypes.MOUSEUP_COORDS, self._at(action["x2"], action["y2"])
            case "type":
                selenium_actions.execute_click_coords(action["x"], action["y"], driver)
                selenium_actions.execute_press_key("C-a", driver)
                kind, more = ActionTypes.TYPE_TEXT, {"text": action["text"]}
            case "key":
                selenium_actions.execute_press_key(_key(action["keys"]), driver)
                kind, more = ActionTypes.NONE, {}
            case "scroll":
                selenium_actions.execute_scroll_coords(action["x"], action["y"], round(action["dy"]), 0, driver)
                kind, more = ActionTypes.NONE, {}
            case "wait":
                time.sleep(action["seconds"])
                kind, more = ActionTypes.NONE, {}
            case other:
                raise ValueError(f"unknown action {other!r}")
        _, _, done, _, info = self._env.step(self._action(kind, more))
        return {"done": bool(done), "reward": float(info["raw_reward"]), "seconds": time.perf_counter() - begun}

    def close(self) -> None:
        """End the browser."""
        if self._env is not None:
            self._env.close()
            self._env = None

    def _action(self, kind: ActionTypes, more: dict) -> dict:
        place = {"coords": np.zeros(2, np.float32)}
        number = self._env.action_space_config.action_types.index(kind)
        return {"action_type": number, **_NEUTRAL, **place, **more}

    @staticmethod
    def _at(x: float, y: float) -> dict:
        return {"coords": np.array([x, y], np.float32)}


def _key(keys: str) -> str:
    """`Control+a` in the environment's own spelling, `C-a`; `Enter` as `<Enter>`."""
    *modifiers, name = keys.split("+")
    short = {"Control": "C-", "Shift": "S-", "Alt": "A-", "Meta": "M-"}
    return "".join(short[modifier] for modifier in modifiers) + (name if len(name) == 1 else f"<{name}>")


def main() -> None:
    """Answer requests until the pipe closes. Whatever libraries print goes to the error stream."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    logging.disable(logging.CRITICAL)
    os.environ.setdefault("MINIWOB_CHROME_BINARY", shutil.which("chromium") or "")
    os.environ.setdefault("MINIWOB_CHROMEDRIVER", shutil.which("chromedriver") or "")
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
                return worker.open(request["task"], request["seed"], request["wait_ms"])
            case "act":
                return worker.act(request["action"])
            case _:
                worker.close()
                return {}
    except Exception as error:  # noqa: BLE001 - the parent decides what a failure of the other side means
        return {"error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    main()
