"""An environment and a reward of one's own: a number, two buttons that add to it, and a goal to reach exactly."""

from cairn.data.action import Action, Click
from cairn.data.ids import ElementId, TemplateId
from cairn.data.observation import Box, Element, Observation
from cairn.data.task import Start, Task, Template
from cairn.data.trajectory import Evidence, Trajectory
from cairn.ports import Step


class NumberSession:
    """One episode. It knows how it is solved, and so gives demonstrations too."""

    def __init__(self, task: Task) -> None:
        self._number, self._wanted = 0, task.seed % 7 + 1
        self.goal = f"make it {self._wanted}"

    async def observe(self) -> Observation:
        faces = (("button", "+1", True), ("button", "+3", True), ("text", str(self._number), False))
        boxes = [Box(left=0.1, top=0.3 * i, width=0.5, height=0.2) for i in range(len(faces))]
        elements = tuple(
            Element(id=ElementId(i), role=role, label=label, value="", states=(), interactive=usable, box=box)
            for i, ((role, label, usable), box) in enumerate(zip(faces, boxes, strict=True), start=1)
        )
        return Observation(image=None, elements=elements, accessibility="", url="", digest=str(self._number))

    async def act(self, action: Action) -> Step:
        if not isinstance(action, Click) or action.target not in (1, 2):
            return Step(done=False, message="click button 1 or 2")
        self._number += 1 if action.target == 1 else 3
        return Step(done=self._number >= self._wanted)

    async def evidence(self) -> Evidence:
        done, won = self._number >= self._wanted, self._number == self._wanted
        return Evidence(done=done, raw_reward=float(won), state=str(self._number))

    async def snapshot(self) -> None: ...  # it cannot be saved

    async def expert_action(self) -> Action:
        return Click(ElementId(2 if self._wanted - self._number >= 3 else 1))

    async def close(self) -> None: ...  # it holds nothing


class NumberEnvironment:
    name, capacity, templates = "number", 8, (Template(id=TemplateId("number/make"), max_turns=8),)

    def has_expert(self, template: Template) -> bool:
        return template in self.templates

    async def open(self, task: Task, *, start: Start) -> NumberSession:
        return NumberSession(task)

    async def close(self) -> None: ...


class FewClicks:
    async def score(self, trajectory: Trajectory) -> float:
        won = trajectory.evidence is not None and trajectory.evidence.raw_reward == 1
        return 1.0 if won else -0.1 * len(trajectory.turns)
