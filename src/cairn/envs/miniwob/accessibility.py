"""The browser's accessibility tree of a page as text, in BrowserGym's style."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from cairn.envs.chromium.page import Page

_Node = Mapping[str, Any]
_SILENT = frozenset({"none", "generic", "InlineTextBox", "LineBreak", "LabelText"})
_SHOWN = ("checked", "disabled", "expanded", "focused", "selected", "readonly", "pressed")


async def accessibility_tree(page: Page) -> str:
    """One `[id] role 'name', property='value'` a line; ids are those of the page's latest observation."""
    numbers = await _numbers(page)
    reply = await page.send("Accessibility.getFullAXTree")
    nodes = {str(node["nodeId"]): cast("_Node", node) for node in reply["nodes"]}
    lines: list[str] = []
    root = next((node for node in nodes.values() if "parentId" not in node), None)
    if root is not None:
        _write(root, nodes, numbers, lines)
    return "\n".join(lines)


async def _numbers(page: Page) -> Mapping[int, int]:
    """Number in the observation by the browser's own node number."""
    listed = await page.send("Runtime.evaluate", {"expression": "__cairn.nodes", "objectGroup": "cairn"})
    properties = await page.send(
        "Runtime.getProperties", {"objectId": listed["result"]["objectId"], "ownProperties": True}
    )
    asked = [
        (int(each["name"]) + 1, page.send("DOM.describeNode", {"objectId": each["value"]["objectId"]}))
        for each in properties["result"]
        if each["name"].isdigit()
    ]
    numbers = {int((await answer)["node"]["backendNodeId"]): number for number, answer in asked}
    await page.send("Runtime.releaseObjectGroup", {"objectGroup": "cairn"})
    return numbers


def _write(
    node: _Node, nodes: Mapping[str, _Node], numbers: Mapping[int, int], lines: list[str], depth: int = 0
) -> None:
    line = "" if node.get("ignored") else _line(node, numbers.get(int(node.get("backendDOMNodeId", -1))))
    if line:
        lines.append("\t" * depth + line)
    for child in cast("Sequence[str]", node.get("childIds", ())):
        if child in nodes:
            _write(nodes[child], nodes, numbers, lines, depth + bool(line))


def _line(node: _Node, number: int | None) -> str:
    role = str(node.get("role", {}).get("value", ""))
    name = str(node.get("name", {}).get("value", ""))
    if role in _SILENT and number is None:
        return ""
    parts = [f"{f'[{number}] ' if number else ''}{role} {name!r}"]
    value = node.get("value", {}).get("value")
    if value not in (None, ""):
        parts.append(f"value={str(value)!r}")
    for each in cast("Sequence[_Node]", node.get("properties", ())):
        state = each["value"].get("value")
        if each["name"] in _SHOWN and state not in (None, False, "false"):
            parts.append(f"{each['name']}={str(state).lower()!r}")
    return ", ".join(parts)
