"""The commands of scripted experts, and the actions that they are.

An expert is a function of the page's that returns null (it knows nothing) or one command, a plain object:

    {kind: "click" | "double_click" | "right_click" | "hover", node | x, y}
    {kind: "type", node, text}       focus, replace; on a native select: choose the option with that label
    {kind: "key", keys: "Enter"}     {kind: "drag", node | x, y, node2 | x2, y2}
    {kind: "scroll", node | x, y, dx, dy}   CSS px    {kind: "wait", seconds}    {kind: "answer", text}

`node` is an index into `window.__cairnNodes`, where the expert put the node; x and y are CSS pixels of the screen.
"""

from collections.abc import Mapping
from typing import cast

from cairn.data.action import (
    Action,
    Answer,
    Click,
    DoubleClick,
    Drag,
    Hover,
    Key,
    Point,
    RightClick,
    Scroll,
    Target,
    Type,
    Wait,
)
from cairn.data.ids import ElementId
from cairn.envs.chromium.observe import Screen
from cairn.envs.chromium.page import Page
from cairn.errors import SessionError

# Nodes become numbers of the latest observation where they have one, else places; all in one round trip.
_ASK = """(() => {
  const command = %s;
  if (!command) return null;
  const answer = { ...command };
  for (const [node, x, y, id] of [['node', 'x', 'y', 'id'], ['node2', 'x2', 'y2', 'id2']]) {
    if (answer[node] === undefined) continue;
    const element = window.__cairnNodes[answer[node]];
    answer[id] = __cairn.idOf(element);
    if (!answer[id]) {
      const place = __cairn.place(element);
      if (!place) return null;
      [answer[x], answer[y]] = place;
    }
  }
  return answer;
})()"""

_Command = Mapping[str, str | float]


async def commanded(page: Page, expression: str, *, screen: Screen) -> Action | None:
    """What the expert says whose command `expression` gives; None where it knows nothing."""
    command = await page.evaluate(_ASK % expression)
    try:
        return None if command is None else _action_of(cast("_Command", command), screen)
    except KeyError as error:
        raise SessionError(f"the scripted expert gave a command without {error}: {command}") from error


def _action_of(command: _Command, screen: Screen) -> Action:
    match str(command["kind"]):
        case "click":
            return Click(_target(command, screen))
        case "double_click":
            return DoubleClick(_target(command, screen))
        case "right_click":
            return RightClick(_target(command, screen))
        case "hover":
            return Hover(_target(command, screen))
        case "drag":
            return Drag(_target(command, screen), _target(command, screen, "2"))
        case _:
            return _other_action_of(command, screen)


def _other_action_of(command: _Command, screen: Screen) -> Action:
    placed = "id" in command or "x" in command
    match str(command["kind"]):
        case "type":
            return Type(str(command["text"]), _target(command, screen) if placed else None)
        case "key":
            return Key(str(command["keys"]))
        case "scroll":
            dx, dy = float(command.get("dx", 0)) / screen.width, float(command.get("dy", 0)) / screen.height
            return Scroll(_target(command, screen) if placed else None, dx, dy)
        case "wait":
            return Wait(float(command["seconds"]))
        case "answer":
            return Answer(str(command["text"]))
        case kind:
            raise SessionError(f"the scripted expert gave an unknown command {kind!r}")


def _target(command: _Command, screen: Screen, suffix: str = "") -> Target:
    number = int(command.get(f"id{suffix}", 0))
    if number:
        return ElementId(number)
    x, y = float(command[f"x{suffix}"]) / screen.width, float(command[f"y{suffix}"]) / screen.height
    return Point(min(1.0, max(0.0, x)), min(1.0, max(0.0, y)))
