"""Terms together: weights, gates, what is right, and what siblings change."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.data.action import Click
from cairn.data.task import Purpose
from cairn.data.trajectory import Outcome, ScoredTrajectory, Term
from cairn.errors import InvariantError
from cairn.ports import Verdict
from cairn.rewards.composed import Composed, Gate, GroupPart, Part
from cairn.rewards.grouped import LengthBudget, ShortestPath
from cairn.rewards.terms import Case
from rewards.judged_states import CLICK, OKAY, played, state
from rollout.stage import plan_for

AT_OKAY = state(Click(OKAY))
ANSWER, EPISODE = played(CLICK, start=AT_OKAY), played(CLICK)


@dataclass
class Says:
    """A term of one value, which counts how often it is asked."""

    what: float | None
    asked: int = 0

    async def value(self, case: Case) -> float | None:
        self.asked += 1
        return self.what


def part(name: str, value: float | None, *, weight: float = 1.0, gate: Gate | None = None) -> Part:
    return Part(name=name, weight=weight, measure=Says(value), gate=gate or Gate())


async def judged(*parts: Part, correct: Sequence[str] = (), solved: bool = False) -> Verdict:
    verdict = await Composed(parts=parts, correct=correct).verdict(ANSWER, solved=solved)
    assert verdict is not None
    return verdict


def worth(verdict: Verdict) -> float:
    return math.fsum(term.worth for term in verdict.terms)


async def test_a_reward_is_the_weighted_sum_of_its_terms() -> None:
    verdict = await judged(part("a", 1.0, weight=0.2), part("b", 0.5, weight=0.8), part("c", -1.0))
    assert [(t.name, t.weight, t.value) for t in verdict.terms] == [("a", 0.2, 1.0), ("b", 0.8, 0.5), ("c", 1.0, -1.0)]
    assert worth(verdict) == pytest.approx(-0.4)


async def test_a_gate_shuts_what_needs_more_and_what_is_needed_no_longer() -> None:
    for form, act, reward in ((1.0, 1.0, 1.0), (1.0, 0.0, 0.3), (0.0, 1.0, 0.0)):
        verdict = await judged(
            part("form", form, weight=0.1),
            part("act", act, weight=0.9, gate=Gate(needs=("form",))),
            part("aim", 1.0, weight=0.2, gate=Gate(needs=("form",), unless=("act",))),
        )
        assert worth(verdict) == pytest.approx(reward)
        assert len(verdict.terms) == 3  # what a gate has shut is seen as 0


async def test_nobody_is_asked_behind_a_shut_gate() -> None:
    shut = part("aim", 1.0, gate=Gate(unless=("act",)))
    await judged(part("act", 1.0), shut)
    assert isinstance(shut.measure, Says)
    assert shut.measure.asked == 0


async def test_what_nearly_fulfils_a_term_does_not_open_its_gate() -> None:
    verdict = await judged(part("a", 0.99), part("b", 1.0, gate=Gate(needs=("a",))))
    assert [t.value for t in verdict.terms] == [0.99, 0.0]


async def test_a_term_without_anything_to_say_is_left_out_and_shuts_nothing() -> None:
    verdict = await judged(part("a", None), part("b", 1.0, gate=Gate(needs=("a",), unless=("a",))))
    assert [(t.name, t.value) for t in verdict.terms] == [("b", 1.0)]
    assert await Composed(parts=[part("a", None)]).verdict(ANSWER, solved=True) is None


@pytest.mark.parametrize(("a", "b", "right"), [(1.0, 1.0, True), (1.0, 0.5, False), (0.0, 1.0, False)])
async def test_the_named_terms_decide_what_is_right(a: float, b: float, right: bool) -> None:  # noqa: FBT001
    for solved in (True, False):
        verdict = await judged(part("a", a), part("b", b), part("c", 0.0), correct=["a", "b"], solved=solved)
        assert verdict.solved is right


async def test_without_them_the_runs_own_judge_decides() -> None:
    for solved in (True, False):
        assert (await judged(part("a", 0.0), solved=solved)).solved is solved
        unheard = await judged(part("a", 1.0), part("b", None), correct=["a", "b"], solved=solved)
        assert unheard.solved is solved


async def test_it_judges_the_kinds_of_trajectories_that_it_is_made_for_and_no_demonstrations() -> None:
    parts = [part("a", 1.0)]
    answers, episodes = Composed(parts=parts, in_sessions=False), Composed(parts=parts, at_recorded=False)
    for composed, trajectory, heard in (
        (answers, ANSWER, True),
        (answers, EPISODE, False),
        (episodes, ANSWER, False),
        (episodes, EPISODE, True),
    ):
        assert (await composed.verdict(trajectory, solved=True) is not None) is heard
    shown = replace(EPISODE, plan=replace(EPISODE.plan, purpose=Purpose.DEMONSTRATE))
    assert await episodes.verdict(shown, solved=True) is None


values = st.floats(-1, 1)


@given(st.lists(st.tuples(values, st.floats(-2, 2)), min_size=1, max_size=6), st.data())
async def test_a_reward_lies_between_its_bounds(rows: list[tuple[float, float]], data: st.DataObject) -> None:
    parts: list[Part] = []
    for place, (value, weight) in enumerate(rows):
        gate = Gate(needs=tuple(data.draw(st.lists(st.sampled_from([p.name for p in parts]))) if parts else ()))
        parts.append(part(str(place), value, weight=weight, gate=gate))
    verdict = await judged(*parts)
    assert abs(worth(verdict)) <= sum(abs(weight) for _, weight in rows) + 1e-9
    for term, (value, _) in zip(verdict.terms, rows, strict=True):
        assert term.value in (0.0, value)


# ── siblings ──────────────────────────────────────────────────────────────────


def member(letters: int, *, right: bool, form: float = 1.0, turns: int = 1, recorded: bool = True) -> ScoredTrajectory:
    trajectory = played(
        *[CLICK] * turns, texts=("x" * (letters - 1),) * turns, plan=plan_for(start=AT_OKAY if recorded else None)
    )
    terms = (Term(name="format", weight=1.0, value=form),)
    outcome = Outcome.SUCCESS if right else Outcome.FAILURE
    return ScoredTrajectory(trajectory=trajectory, outcome=outcome, reward=form, terms=terms)


def lengths(*, limit: int | None = None, weight: float = 1.0, gate: Gate | None = None) -> Composed:
    budget = GroupPart(name="length", weight=weight, measure=LengthBudget(limit=limit), gate=gate or Gate())
    return Composed(parts=[], group_parts=[budget])


def test_lengths_are_rewarded_as_published() -> None:
    group = [member(n, right=True) for n in (40, 60, 60, 80)] + [member(n, right=False) for n in (200, 200, 60, 100)]
    judged = lengths().together(group)
    added = [m.terms[-1].value for m in judged]
    assert added[:3] == pytest.approx([0.846, 0.769, 0.769], abs=5e-4)
    assert added[4:7] == pytest.approx([-0.1, -0.1, -0.585], abs=5e-4)
    assert [m.reward for m in judged] == pytest.approx([1.0 + value for value in added])
    assert [m.outcome for m in judged] == [m.outcome for m in group]


def test_the_budget_may_reach_up_to_the_limit_of_generation() -> None:
    group = [member(60, right=True), member(100, right=False)]
    assert lengths().together(group)[0].terms[-1].value == pytest.approx(0.5 + 0.5 * 20 / 80)
    assert lengths(limit=200).together(group)[0].terms[-1].value == pytest.approx(0.5 + 0.5 * 70 / 130)


def test_a_term_over_siblings_has_a_weight_and_a_gate() -> None:
    group = [member(40, right=True), member(40, right=True, form=0.0)]
    open_, shut = lengths(weight=0.5, gate=Gate(needs=("format",))).together(group)
    assert (open_.reward, shut.reward) == (pytest.approx(1.25), 0.0)
    assert shut.terms[-1].value == 0.0


def test_siblings_that_nothing_was_said_of_stay_as_they_are() -> None:
    bare = [replace(member(40, right=True), terms=())]
    assert lengths().together(bare) == tuple(bare)
    assert lengths().together([]) == ()


def path(alpha: float = 0.5) -> Composed:
    return Composed(parts=[], group_parts=[GroupPart(name="path", weight=1.0, measure=ShortestPath(alpha=alpha))])


def test_a_success_is_worth_less_for_every_turn_beyond_the_shortest_success() -> None:
    group = [member(5, right=right, turns=n, recorded=False) for n, right in ((4, True), (8, True), (2, False))]
    assert [m.terms[-1].value for m in path().together(group)] == pytest.approx([1.0, 0.75, 0.0])


def test_the_shortest_path_says_nothing_of_single_answers() -> None:
    assert [m.terms for m in path().together([member(5, right=True)])] == [member(5, right=True).terms]


@given(st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=1, max_size=8), st.floats(0.01, 1))
def test_the_shortest_success_is_worth_one_and_nothing_is_worth_more(
    rows: list[tuple[int, bool]], alpha: float
) -> None:
    group = [member(5, right=right, turns=n, recorded=False) for n, right in rows]
    found = [m.terms[-1].value for m in path(alpha).together(group)]
    assert all(0.0 <= value <= 1.0 for value in found)
    assert max(found) == pytest.approx(1.0 if any(right for _, right in rows) else 0.0)


def test_a_reward_that_is_not_the_sum_of_its_terms_is_no_record() -> None:
    with pytest.raises(InvariantError, match="not the sum"):
        replace(member(40, right=True), reward=2.0)
