"""A small vision-language model learns from pixels alone to click a rectangle: imitation first, then practice.

    python examples/see_and_click.py OUT [MINUTES]

The screen is drawn anew for every seed: a rectangle near one of sixteen places, on a background of its own colour.
Nothing but the picture says where it is. The model is a Qwen3-VL of half a million random weights, which says places as
numbers. Its share of hits on screens that it has never seen is printed; `OUT/run/events.jsonl` tells all.
"""

import asyncio
import hashlib
import io
import sys
from pathlib import Path

from PIL import Image, ImageDraw

from cairn.app.brain import build_brain
from cairn.app.tiny import make_named
from cairn.app.training import Parts, build_course
from cairn.config import recipe as configuration
from cairn.data.action import Action, Click, Point
from cairn.data.ids import ElementId, TemplateId
from cairn.data.observation import Box, Element, Observation
from cairn.data.task import Start, Task, Template
from cairn.data.trajectory import Evidence
from cairn.models.loading import configure_torch
from cairn.ports import BlobStore, Step
from cairn.store.run import RunWriter

SCREEN = 128
SIDE = 0.25  # of the rectangle: whoever does not look hits it in 6 % of all cases
JITTER = 0.02
CLICK = Template(id=TemplateId("drawn/click"), max_turns=1)


class DrawnSession:
    """A light screen with a red rectangle."""

    goal = "click the rectangle"

    def __init__(self, task: Task, blobs: BlobStore) -> None:
        drawn = hashlib.sha256(str(task.seed).encode()).digest()
        left, top = (byte % 4 * 0.25 + JITTER * (byte / 128 - 1) for byte in drawn[:2])
        self._background = tuple(128 + byte // 2 for byte in drawn[2:5])
        self._box = Box(left=left, top=top, width=SIDE, height=SIDE)
        self._blobs = blobs
        self._hit = self._done = False

    async def observe(self) -> Observation:
        image = Image.new("RGB", (SCREEN, SCREEN), self._background)
        box = self._box
        corners = (box.left, box.top, box.left + box.width, box.top + box.height)
        ImageDraw.Draw(image).rectangle([round(SCREEN * side) for side in corners], fill=(255, 0, 0))
        data = io.BytesIO()
        image.save(data, "PNG")
        target = Element(
            id=ElementId(1), role="button", label="rectangle", value="", states=(), interactive=True, box=box
        )
        return Observation(
            image=self._blobs.put(data.getvalue()), elements=(target,), accessibility="", url="", digest=str(box)
        )

    async def act(self, action: Action) -> Step:
        if not isinstance(action, Click):
            return Step(done=False, message="click the rectangle")
        at, box = action.target, self._box
        self._done = True
        self._hit = not isinstance(at, Point) or (
            box.left <= at.x <= box.left + box.width and box.top <= at.y <= box.top + box.height
        )
        return Step(done=True)

    async def evidence(self) -> Evidence:
        return Evidence(done=self._done, raw_reward=float(self._hit), state="")

    async def snapshot(self) -> None: ...  # it cannot be saved

    async def expert_action(self) -> Action:
        return Click(ElementId(1))

    async def close(self) -> None: ...  # it holds nothing


class DrawnEnvironment:
    name, capacity, templates = "drawn", 32, (CLICK,)

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs

    def has_expert(self, template: Template) -> bool:
        return template in self.templates

    async def open(self, task: Task, *, start: Start) -> DrawnSession:
        return DrawnSession(task, self._blobs)

    async def close(self) -> None: ...


RECIPE = """
[policy]
model = "path"
path = "{model}"
codec = "ui-tars"
coordinates = "thousandths"
images = 1
past_turns = 0
instructions = false
threads = 1
dtype = "float32"
max_answer_tokens = 24
[demonstrations]
per_template = {shown}
[imitation]
minutes = {imitate}
batch_size = 32
optimizer.learning_rate = 2e-3
optimizer.weight_decay = 0.01
[rollout]
concurrency = 32
[reinforcement]
minutes = {practise}
groups_per_update = 16
group_size = 8
negative_scale = 0.5
optimizer.learning_rate = 3e-4
optimizer.warmup_steps = 5
[evaluation]
per_template = 64
curve_per_template = 64
curve_every_minutes = {every}
"""


async def learn(out: Path, *, minutes: float) -> None:
    model = out / "start"
    make_named("qwen3-vl", model, width=96, layers=3, image=SCREEN, seed=0)
    path = out / "recipe.toml"
    path.write_text(
        RECIPE.format(
            model=model, shown=1000, imitate=0.6 * minutes, practise=0.4 * minutes, every=max(0.2, minutes / 20)
        )
    )
    config = configuration.load(path)
    run = RunWriter.create(out / "run", recipe=configuration.to_toml(config), seed=config.seed)
    brain = build_brain(config, blobs=run.blobs)
    try:
        parts = Parts(
            environment=DrawnEnvironment(run.blobs), templates=(CLICK,), brain=brain, events=run.events, run=run
        )
        progress = await build_course(config, parts, control=False, tracks=()).run()
        for measured in progress.measured:
            print(measured.phase, "greedy" if measured.greedy else "sampled", dict(measured.by_template))
    finally:
        await brain.engine.close()
        run.close()


if __name__ == "__main__":
    configure_torch(threads=1)
    asyncio.run(learn(Path(sys.argv[1]), minutes=float(sys.argv[2]) if len(sys.argv) > 2 else 30.0))
