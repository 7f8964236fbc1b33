"""What the published rewards come to, answer by answer, from the text that was said to the sum."""

import math
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.app.rewards import RewardParts, build_composition
from cairn.codecs.thinking import ThinkingCodec
from cairn.config.rewards import RewardOptions
from cairn.data.action import Click, Invalid, Type
from cairn.data.task import Recorded
from cairn.data.trajectory import Ending, Evidence, Trajectory
from cairn.ports import Opinion, Question
from cairn.rewards import shaping
from letter_tokenizer import LetterTokenizer
from rewards.judged_states import CLICK, FIELD, OKAY, SEEN, ids_of, played, state

CODEC = ThinkingCodec(tokenizer=LetterTokenizer())
THINK = "<think>I press okay.</think>"
RIGHT, WRONG, CORNER = (f"<action>{line}</action>" for line in ("click [1]", "click [2]", "click (200, 200)"))
TYPED = '<action>type "new york city"</action>'
AT_OKAY = state(Click(OKAY), sub_goal="press okay")
AT_FIELD = state(Type("new york", FIELD))


@dataclass(frozen=True)
class Fixed:
    """A judge of one mark."""

    score: float
    name: str = "fixed"

    async def judge(self, question: Question) -> Opinion:
        return Opinion(score=self.score)


async def earned(preset: str, trajectory: Trajectory, *, mark: float = 0.5, solved: bool = False) -> float:
    options = RewardOptions.model_validate({"preset": preset, "judge": {"offline": True}})
    composed = build_composition(options, RewardParts(codec=CODEC, judge=Fixed(mark), longest=64))
    assert composed is not None
    verdict = await composed.verdict(trajectory, solved=solved)
    assert verdict is not None
    return math.fsum(term.worth for term in verdict.terms)


def answer(text: str, start: Recorded = AT_OKAY) -> Trajectory:
    return played(CODEC.parse("g", ids_of(text), SEEN), start=start, texts=(text,))


@pytest.mark.parametrize(
    ("preset", "text", "reward"),
    [
        ("ui-r1", THINK + RIGHT, 3.0),
        ("ui-r1", RIGHT, 2.0),
        ("ui-r1", THINK + CORNER, 3.0),  # the edge is inside
        ("ui-r1", THINK + WRONG, 2.0),
        ("ui-r1", THINK + TYPED, 1.0),
        ("ui-r1", THINK + "<action>?</action>", 1.0),  # its shape alone counts
        ("ui-r1", "?", 0.0),
        ("ui-r1-e", THINK + RIGHT, 3.0),  # the length comes with the siblings
        ("nothink", RIGHT, 3.0),
        ("nothink", THINK + RIGHT, 2.0),
        ("gui-r1", THINK + RIGHT, 1.0),
        ("gui-r1", RIGHT, 0.8),  # the format gates nothing
        ("gui-r1", THINK + CORNER, 0.2),  # the edge is outside
        ("gui-r1", THINK + WRONG, 0.2),
        ("gui-r1", THINK + "<action>?</action>", 0.0),
        ("gui-r1-paper", THINK + RIGHT, 2.6),
        ("gui-r1-paper", THINK + CORNER, 2.6),
        ("gui-r1-paper", THINK + WRONG, 1.8),
        ("gui-r1-paper", THINK + TYPED, 0.2),
        ("infigui-r1", THINK + RIGHT, 1.0),
        ("infigui-r1", RIGHT, 0.0),  # nothing counts without the format
        ("infigui-r1", THINK + WRONG, 0.1 + 0.18 + 0.18 * 0.5),
        ("infigui-r1", THINK + TYPED, 0.1 + 0.18 * 0.5),
        ("mobile-r1-action", THINK + RIGHT, 2.0),
        ("mobile-r1-action", RIGHT, 1.0),
        ("mobile-r1-action", THINK + WRONG, 1.0),
    ],
)
async def test_a_click_earns_what_is_published(preset: str, text: str, reward: float) -> None:
    assert await earned(preset, answer(text)) == pytest.approx(reward)


@pytest.mark.parametrize(
    ("preset", "reward"),
    [("ui-r1", 3.0), ("gui-r1", 1.0), ("gui-r1-paper", 2.6), ("infigui-r1", 0.1 + 0.18), ("mobile-r1-action", 1.0)],
)
async def test_a_text_that_is_nearly_right_is_right_where_words_are_counted(preset: str, reward: float) -> None:
    assert await earned(preset, answer(THINK + TYPED, AT_FIELD)) == pytest.approx(reward)  # an F1 of 0.8


async def test_half_of_the_words_are_enough_for_the_code_and_not_for_the_paper() -> None:
    half = answer(f'{THINK}<action>type "new orleans"</action>', AT_FIELD)
    assert await earned("gui-r1", half) == pytest.approx(1.0)
    assert await earned("gui-r1-paper", half) == pytest.approx(1.8)


@given(formed=st.booleans(), kind=st.booleans(), place=st.booleans(), mark=st.integers(0, 10).map(lambda n: n / 10))
async def test_infigui_is_its_formula(formed: bool, kind: bool, place: bool, mark: float) -> None:  # noqa: FBT001
    line = (RIGHT if place else WRONG) if kind else TYPED
    accuracy = shaping.agent_accuracy(right_type=kind, right_parameters=kind and place, sub_goal=mark)
    wanted = shaping.gated(well_formed=formed, accuracy=accuracy)
    assert await earned("infigui-r1", answer(THINK * formed + line), mark=mark) == pytest.approx(wanted)


BROKEN = Invalid("?", "no action")


@pytest.mark.parametrize(
    ("preset", "trajectory", "solved", "reward"),
    [
        ("webagent-r1", played(CLICK), True, 1.0),
        ("webagent-r1", played(CLICK), False, 0.0),
        ("arpo", played(CLICK), True, 1.0),
        ("arpo", played(CLICK, BROKEN), False, -1.0),
        ("arpo-code", played(CLICK, BROKEN), False, -0.5),
        ("arpo", played(CLICK, ending=Ending.OUT_OF_TURNS), False, 0.0),
        ("mobile-r1-task", played(CLICK), False, 1.5),
        ("mobile-r1-task", played(CLICK, CLICK, CLICK, BROKEN), False, 1.0),
        ("mobile-r1-task-checked", played(CLICK), True, 2.0),
        ("mobile-r1-task-checked", played(CLICK), False, 1.0),
        ("mobile-r1-task-checked", played(CLICK, CLICK, CLICK, BROKEN), True, 1.5),
        ("mobilegym", played(CLICK, evidence=Evidence(done=True, raw_reward=0.5, state="")), False, 0.4),
        ("mobilegym", played(CLICK), True, 1.0),
    ],
)
async def test_an_episode_earns_what_is_published(
    preset: str,
    trajectory: Trajectory,
    solved: bool,  # noqa: FBT001
    reward: float,
) -> None:
    assert await earned(preset, trajectory, solved=solved) == pytest.approx(reward)
