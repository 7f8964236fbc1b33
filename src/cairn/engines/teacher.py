"""Teachers of thoughts: a model behind an OpenAI-compatible URL, and one that asks nobody. Prompts are data."""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from cairn.codecs.answer_parts import tagged
from cairn.codecs.layout import layout_text
from cairn.codecs.text import PageLimits, past_text, said_briefly
from cairn.codecs.thinking import Message, said_action
from cairn.data.task import Recorded
from cairn.engines.chat import ChatEndpoint
from cairn.engines.prompt import Prompt, read_prompt, shipped_prompt
from cairn.teacher_ports import Explanation


class TeacherPrompt(Prompt):
    """How a teacher is asked."""

    def asked(self, start: Recorded) -> tuple[Message, Message]:
        """The messages."""
        seen = start.observation
        return self.filled(
            {
                "goal": seen.instruction(start.goal).strip(),
                "page": layout_text(seen),
                "past": past_text(start.history, seen, PageLimits(actions=8)),
            }
        )


def load_teacher_prompt(path: Path | None = None) -> TeacherPrompt:
    """The shipped prompt, or that in the file `path`. A `ConfigError` says what is wrong with it."""
    source = path or shipped_prompt("teacher")
    return read_prompt(TeacherPrompt, source, whose="teacher", place="page", what="the page")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatTeacher:
    """Implements `Teacher`: shows the page as text with places, and reads thought and action."""

    endpoint: ChatEndpoint
    prompt: TeacherPrompt = field(default_factory=load_teacher_prompt)

    @property
    def name(self) -> str:
        return self.endpoint.model

    async def explain(self, start: Recorded) -> Explanation:
        said = await self.endpoint.say(self.prompt.asked(start))
        return Explanation(thought=tagged(said, action="action").thought, action=said_action(said))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingTeacher:
    """Implements `Teacher` without asking anybody: it reads the recorded step aloud, and is always right.

    It is for tests and for trying a recipe: what it thinks follows from the answer, not the answer from what it thinks.
    """

    wordy: bool = False
    """At two states of three it reads more aloud before: the goal, or the goal and what the page shows. So a policy
    that imitates it thinks at different lengths, of which the shortest would do."""

    name = "offline"

    async def explain(self, start: Recorded) -> Explanation:
        step = start.sub_goal or said_briefly(start.expert, start.observation)
        more = _aloud(start) if self.wordy else ()
        return Explanation(thought=" ".join((*more, f"Next: {step}.")), action=start.expert)


def _aloud(start: Recorded) -> tuple[str, ...]:
    """None, one or both of what could be said at length; which, is drawn from the state."""
    seen = start.observation
    shown = [element.label for element in seen.elements if element.interactive and element.label][:_SHOWN]
    said = (f"The goal: {' '.join(start.goal.split())}.", f"The page shows {', '.join(shown) or 'nothing to click'}.")
    drawn = hashlib.sha256(f"{start.goal}/{seen.digest}/{len(start.history)}".encode()).digest()[0]
    return said[: drawn % (len(said) + 1)]


_SHOWN = 5  # elements
