"""The MiniWoB++ pages of the installed wheel, and the scripts that Cairn runs in them.

Contract of the scripted experts. The files `experts/*.js`, joined in the order of their names, define
`window.__cairnExpert(task)`; it reads the page and returns null or one command (`cairn.envs.chromium.commands`).
`window.__cairnIdOf(node)` is the node's number in the latest observation, or 0. `window.__cairnMemory` is an object
that lives as long as the episode.
"""

import importlib.util
import re
from functools import cache
from importlib.resources import files
from pathlib import Path

from cairn.data.observation import Box
from cairn.envs.chromium.observe import Screen
from cairn.errors import SetupError

WIDTH, HEIGHT = 160, 210  # the screen: the part of the page that belongs to the task, in CSS pixels
SCREEN = Screen(width=WIDTH, height=HEIGHT)
VIEWPORT_WIDTH, VIEWPORT_HEIGHT = 332, 214  # wide enough for jQuery's dialogs to find their place

_REGISTERED = re.compile(r'id="miniwob/([a-z0-9-]+)-v\d+"')


def html_directory() -> Path:
    """Where the wheel keeps its pages. Raises `SetupError` where it is not installed."""
    found = importlib.util.find_spec("miniwob")
    if found is None or found.origin is None:
        raise SetupError("the MiniWoB++ pages are missing; install them with `pip install 'cairn[miniwob]'`")
    return Path(found.origin).parent / "html" / "miniwob"


@cache
def registered_tasks() -> tuple[str, ...]:
    """Names of the registered tasks that have a page of their own, sorted; FlightWoB's need a server and have none."""
    pages = html_directory()
    text = (pages.parents[1] / "registration.py").read_text(encoding="utf-8")
    return tuple(sorted(name for name in set(_REGISTERED.findall(text)) if (pages / f"{name}.html").is_file()))


def page_url(task: str, *, pages: Path | None = None) -> str:
    """The task's page as a file URL; `pages` is where the wheel's pages are, unless in the wheel."""
    return ((pages or html_directory()) / f"{task}.html").as_uri()


def target_url(target: Box) -> str:
    """A page that shows a rectangle of magenta at `target` and nothing else."""
    page = Path(str(files("cairn.envs.miniwob"))) / "target.html"
    return f"{page.as_uri()}?{target.left},{target.top},{target.width},{target.height}"


@cache
def page_script() -> str:
    """Runs in each document before the page's own scripts."""
    return files("cairn.envs.miniwob").joinpath("page.js").read_text(encoding="utf-8")


@cache
def expert_script() -> str:
    """The scripted experts as one function call, so that their names stay out of the page's."""
    folder = files("cairn.envs.miniwob").joinpath("experts")
    parts = sorted((part for part in folder.iterdir() if part.name.endswith(".js")), key=lambda part: part.name)
    joined = "\n".join(part.read_text(encoding="utf-8") for part in parts)
    return f"(() => {{\n{joined}\n}})()"
