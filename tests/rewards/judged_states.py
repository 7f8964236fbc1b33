"""States and answers to judge, in a few words."""

from dataclasses import replace

import numpy as np

from cairn.data.action import Action, Click, Invalid
from cairn.data.ids import ElementId
from cairn.data.observation import Box, Element, Observation
from cairn.data.task import Recorded, RolloutPlan, Root, Start
from cairn.data.trajectory import Completion, Ending, Evidence, Trajectory
from cairn.testing.groups import played_group
from letter_tokenizer import END, LetterTokenizer
from rollout.stage import plan_for

TOKENIZER = LetterTokenizer()
PLAYED = played_group(plan_for(), [1.0]).members[0].trajectory
TURN = PLAYED.turns[0]
OKAY, FIELD, NOTE = ElementId(1), ElementId(2), ElementId(3)


def _element(number: int, role: str, *, top: float, interactive: bool = True, width: float = 0.2) -> Element:
    return Element(
        id=ElementId(number),
        role=role,
        label=f"{role} {number}",
        value="",
        states=(),
        interactive=interactive,
        box=Box(left=0.2, top=top, width=width, height=0.2),
    )


SEEN = Observation(
    image=None,
    elements=(
        _element(1, "button", top=0.2),
        _element(2, "input", top=0.5),
        _element(3, "text", top=0.7, interactive=False),
    ),
    accessibility="",
    url="made-up:",
    digest="d",
)


def state(expert: Action, *, target: Box | None = None, sub_goal: str = "", seen: Observation = SEEN) -> Recorded:
    return Recorded(goal="press it", observation=seen, expert=expert, target=target, sub_goal=sub_goal)


def ids_of(text: str) -> np.ndarray:
    return np.array([*TOKENIZER.encode(text), END], np.int32)


def said(ids: np.ndarray, *, truncated: bool = False) -> Completion:
    return Completion(
        token_ids=ids,
        logprobs=np.full(ids.shape, -0.5, np.float32),
        versions=np.zeros(ids.shape, np.int32),
        truncated=truncated,
    )


def played(
    *actions: Action,
    start: Start | None = None,
    texts: tuple[str, ...] = (),
    ending: Ending | None = None,
    evidence: Evidence | None = None,
    plan: RolloutPlan | None = None,
) -> Trajectory:
    """A trajectory of these actions, said in these texts (default: one letter each)."""
    words = texts or ("x",) * len(actions)
    turns = tuple(
        replace(TURN, action=action, observation=SEEN, completion=said(ids_of(text)))
        for action, text in zip(actions, words, strict=True)
    )
    invalid = any(isinstance(action, Invalid) for action in actions)
    return replace(
        PLAYED,
        plan=plan or plan_for(start=start or Root()),
        turns=turns,
        ending=ending or (Ending.FORMAT_ERROR if invalid else Ending.DONE),
        evidence=evidence or PLAYED.evidence,
    )


CLICK = Click(OKAY)
