"""What each term says of one trajectory."""

from dataclasses import replace

import pytest

from cairn.codecs.thinking import ThinkingCodec
from cairn.data.action import Action, Answer, Click, Drag, Finish, FinishStatus, Invalid, Point, Scroll, Type
from cairn.data.answer import AnswerShape
from cairn.data.trajectory import Ending, Evidence, Trajectory
from cairn.errors import VerifierError
from cairn.rewards import terms
from cairn.rewards.recorded import HitRule, WordRule
from cairn.rewards.terms import Case, Measure, WellFormed
from rewards.judged_states import CLICK, FIELD, OKAY, TOKENIZER, played, said, state

CODEC = ThinkingCodec(tokenizer=TOKENIZER)
BROKEN = Invalid("?", "no action")
LINE = "<action>click okay [1]</action>"
THOUGHT = f"<think>hm</think>{LINE}"


async def value(measure: Measure, trajectory: Trajectory, *, solved: bool = False) -> float | None:
    return await measure.value(Case(trajectory=trajectory, solved=solved))


def formed(shape: AnswerShape = AnswerShape.THINK_ANSWER, *, parses: bool = False) -> WellFormed:
    return WellFormed(codec=CODEC, shape=shape, parses=parses)


# ── form ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "thinking", "at_once"), [(THOUGHT, 1.0, 0.0), (LINE, 0.0, 1.0), (f"Well. {LINE}", 0.0, 0.0)]
)
async def test_a_format_is_the_shape_of_the_whole_answer(text: str, thinking: float, at_once: float) -> None:
    one = played(CLICK, texts=(text,))
    assert await value(terms.Format(formed=formed()), one) == thinking
    assert await value(terms.Format(formed=formed(AnswerShape.ANSWER)), one) == at_once


async def test_an_answer_that_was_cut_is_not_well_formed() -> None:
    one = played(CLICK, texts=(THOUGHT,))
    cut = replace(one.turns[0], completion=said(one.turns[0].completion.token_ids, truncated=True))
    assert await value(terms.Format(formed=formed()), replace(one, turns=(cut,))) == 0.0


async def test_the_shape_alone_counts_unless_an_action_is_asked_for_too() -> None:
    empty = played(BROKEN, texts=("<think>hm</think><action>?</action>",))
    assert await value(terms.Format(formed=formed()), empty) == 1.0
    assert await value(terms.Format(formed=formed(parses=True)), empty) == 0.0


async def test_every_answer_of_an_episode_must_be_well_formed_and_there_must_be_one() -> None:
    term = terms.Format(formed=formed())
    assert await value(term, played(CLICK, CLICK, texts=(THOUGHT, THOUGHT))) == 1.0
    assert await value(term, played(CLICK, CLICK, texts=(THOUGHT, LINE))) == 0.0
    assert await value(term, played()) == 0.0


async def test_the_balance_of_formats_goes_from_minus_one_to_one() -> None:
    term = terms.FormatBalance(formed=WellFormed(codec=None, shape=AnswerShape.ANSWER))
    assert await value(term, played(CLICK, CLICK, CLICK, BROKEN)) == 0.5
    assert await value(term, played(BROKEN)) == -1.0
    assert await value(term, played(CLICK)) == 1.0
    assert await value(term, played()) == -1.0


async def test_a_format_error_costs_one() -> None:
    assert await value(terms.FormatError(), played(CLICK, BROKEN)) == -1.0
    assert await value(terms.FormatError(), played(CLICK)) == 0.0


@pytest.mark.parametrize(("letters", "penalty"), [(5, 0.0), (7, -0.5), (9, -1.0), (30, -1.0)])
async def test_tokens_near_the_limit_cost(letters: int, penalty: float) -> None:
    term = terms.Overlong(limit=10, buffer=4)  # an end token is one of them
    assert await value(term, played(CLICK, texts=("x" * letters,))) == pytest.approx(penalty)
    twice = played(CLICK, CLICK, texts=("x" * (letters - 3), "xx"))
    assert await value(term, twice) == pytest.approx(penalty)


# ── one answer ────────────────────────────────────────────────────────────────

AT_OKAY = state(Click(OKAY))
POINT = terms.PointInBox(rule=HitRule())
ALL = terms.Parameters(place=HitRule(), text=WordRule(least=None))


@pytest.mark.parametrize(
    ("action", "kind", "point", "everything"),
    [
        (Click(OKAY), 1.0, 1.0, 1.0),
        (Click(FIELD), 1.0, 0.0, 0.0),
        (Type("okay"), 0.0, 0.0, 0.0),
        (BROKEN, 0.0, 0.0, 0.0),
    ],
)
async def test_kind_place_and_everything(action: Action, kind: float, point: float, everything: float) -> None:
    one = played(action, start=AT_OKAY)
    found = [await value(term, one) for term in (terms.ActionType(), POINT, ALL)]
    assert found == [kind, point, everything]


async def test_typing_is_right_by_kind_for_the_place_and_by_its_text_for_everything() -> None:
    one = played(Type("rob"), start=state(Type("bob", FIELD)))
    found = [await value(term, one) for term in (terms.ActionType(), POINT, ALL)]
    assert found == [1.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("action", "graded", "bounded"),
    [
        (Type("deep red sea"), 0.8, 1.0),
        (Type("red"), 1.0, 1.0),
        (Type("blue"), 0.0, 0.0),
        (Answer("deep red"), 1.0, 1.0),  # the kind of the action is another term's affair
        (Click(OKAY), 0.0, 0.0),
        (BROKEN, 0.0, 0.0),
    ],
)
async def test_words_in_common(action: Action, graded: float, bounded: float) -> None:
    one = played(action, start=state(Type("deep red")))
    assert await value(terms.TextOverlap(rule=None), one) == pytest.approx(graded)
    assert await value(terms.TextOverlap(rule=WordRule()), one) == bounded


async def test_where_nothing_is_to_be_said_nothing_is_right() -> None:
    term = terms.TextOverlap(rule=WordRule())
    assert await value(term, played(Click(FIELD), start=AT_OKAY)) == 1.0
    assert await value(term, played(Scroll(None, 0.0, 1.0), start=AT_OKAY)) == 0.0
    assert await value(term, played(BROKEN, start=AT_OKAY)) == 0.0


async def test_a_box_overlaps_by_degrees_or_from_a_bound_on() -> None:
    half = played(Drag(Point(0.2, 0.2), Point(0.3, 0.4)), start=AT_OKAY)  # half of the button
    assert await value(terms.BoxOverlap(), half) == pytest.approx(0.5 / 0.7)
    assert await value(terms.BoxOverlap(least=0.6), half) == 0.0
    assert await value(terms.BoxOverlap(least=0.4), half) == 1.0
    assert await value(terms.BoxOverlap(), played(Click(OKAY), start=AT_OKAY)) == 1.0
    assert await value(terms.BoxOverlap(), played(Click(Point(0.3, 0.3)), start=AT_OKAY)) == 0.0
    assert await value(terms.BoxOverlap(), played(Click(OKAY), start=state(Type("x")))) is None


async def test_the_runs_own_judge_may_be_a_term() -> None:
    assert await value(terms.Matched(), played(CLICK, start=AT_OKAY), solved=True) == 1.0
    assert await value(terms.Solved(), played(CLICK), solved=True) == 1.0
    assert await value(terms.Solved(), played(CLICK)) == 0.0


@pytest.mark.parametrize(
    "term", [terms.ActionType(), POINT, ALL, terms.BoxOverlap(), terms.TextOverlap(rule=None), terms.Matched()]
)
async def test_terms_of_recorded_states_say_nothing_of_live_sessions(term: Measure) -> None:
    assert await value(term, played(CLICK)) is None
    assert await value(term, played(start=AT_OKAY)) == 0.0  # no answer at all


@pytest.mark.parametrize("term", [terms.Solved(), terms.Progress()])
async def test_terms_of_live_sessions_say_nothing_of_recorded_states(term: Measure) -> None:
    assert await value(term, played(CLICK, start=AT_OKAY)) is None


# ── MobileGym ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("raw", "done", "last", "told", "reward"),
    [
        (1.0, False, Finish(), "{}", 1.0),
        (1.0, True, CLICK, "{}", 1.0),
        (1.0, False, Finish(), '{"side_effects": ["a"]}', 0.8),
        (1.0, False, Finish(FinishStatus.INFEASIBLE), "{}", 0.5),
        (1.0, False, CLICK, "{}", 0.5),
        (0.5, False, Finish(), "{}", 0.4),
        (0.5, False, Answer("42"), "{}", 0.4),
        (0.5, False, CLICK, "{}", 0.5),
        (0.5, False, Finish(FinishStatus.INFEASIBLE), "no JSON", 0.5),
        (-1.0, True, CLICK, "[]", 0.0),
        (2.0, True, CLICK, "", 1.0),
    ],
)
async def test_progress_is_shaped_by_how_the_work_ended(
    raw: float,
    done: bool,  # noqa: FBT001
    last: Action,
    told: str,
    reward: float,
) -> None:
    one = played(CLICK, last, evidence=Evidence(done=done, raw_reward=raw, state=told))
    assert await value(terms.Progress(), one) == pytest.approx(reward)


async def test_without_evidence_there_is_no_progress_to_judge() -> None:
    lost = replace(played(CLICK), ending=Ending.CANCELLED, evidence=None)
    with pytest.raises(VerifierError):
        await value(terms.Progress(), lost)
