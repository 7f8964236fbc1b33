from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.data.action import Finish
from cairn.data.ids import GroupId, ImageId
from cairn.data.observation import Observation
from cairn.data.sample import Aggregation, Batch, NoGradient
from cairn.data.trajectory import (
    Completion,
    Ending,
    Evidence,
    Outcome,
    Prompt,
    ScoredGroup,
    ScoredTrajectory,
    Trajectory,
    Turn,
)
from cairn.errors import ConfigError
from cairn.rollout.estimators import by_trajectory, no_gradient
from cairn.rollout.samples import Credited, Crediting, credit, samples_of
from rollout.stage import plan_for

SEEN = Observation(image=None, elements=(), accessibility="", url="", digest="")
MEANS = (Aggregation.TOKEN_MEAN, Aggregation.SEQ_MEAN_TOKEN_MEAN, Aggregation.TRAJECTORY_MEAN)


def centered(rewards: np.ndarray) -> np.ndarray:
    return (rewards - rewards.mean()).astype(np.float32)


def turn(prompt: Sequence[int], answer: Sequence[int], *, version: int = 0, images: Sequence[str] = ()) -> Turn:
    ids = np.array(answer, np.int32)
    return Turn(
        observation=SEEN,
        prompt=Prompt(token_ids=np.array(prompt, np.int32), images=tuple(ImageId(i) for i in images)),
        completion=Completion(
            token_ids=ids,
            logprobs=-ids.astype(np.float32),
            versions=np.full(ids.shape, version, np.int32),
            truncated=False,
        ),
        action=Finish(),
    )


def member(turns: Sequence[Turn], reward: float, *, sibling: int = 0, outcome: Outcome | None = None):
    trajectory = Trajectory(
        plan=plan_for(size=8),
        sibling=sibling,
        attempt=0,
        goal="",
        turns=tuple(turns),
        ending=Ending.DONE,
        evidence=Evidence(done=True, raw_reward=reward, state=""),
        error=None,
    )
    won = Outcome.SUCCESS if reward == 1.0 else Outcome.FAILURE
    return ScoredTrajectory(trajectory=trajectory, outcome=outcome or won, reward=reward)


def group(*members: ScoredTrajectory, name: str = "g") -> ScoredGroup:
    return ScoredGroup(plan=replace(plan_for(size=8), group_id=GroupId(name)), members=members)


@st.composite
def histories(draw: st.DrawFn, *, distinct: bool = True) -> list[Turn]:
    """Multi-turn histories that now and then are edited, as a compacting agent does.

    With `distinct`, no two tokens are equal, so that loss and repetition both show; without, equal samples abound.
    """
    fresh = iter(range(1, 10**6))
    token = (lambda: next(fresh)) if distinct else (lambda: draw(st.integers(1, 2)))
    history: list[int] = []
    images: list[str] = []
    turns: list[Turn] = []
    for version in range(draw(st.integers(1, 5 if distinct else 2))):
        if draw(st.booleans()):
            history, images = [], []
        prompt = history + [token() for _ in range(draw(st.integers(1, 3 if distinct else 1)))]
        images = images + ["i"] * draw(st.integers(0, 1))
        answer = [token() for _ in range(draw(st.integers(1, 3 if distinct else 2)))]
        turns.append(turn(prompt, answer, version=version, images=images))
        history = prompt + answer
    return turns


@st.composite
def rounds(draw: st.DrawFn) -> list[ScoredGroup]:
    reward = st.sampled_from([0.0, 1.0, 0.25])
    sizes = draw(st.lists(st.integers(2, 4), min_size=1, max_size=3))
    return [
        group(*[member(draw(histories(distinct=False)), draw(reward), sibling=i) for i in range(size)], name=f"g{n}")
        for n, size in enumerate(sizes)
    ]


# ── turns to samples ──────────────────────────────────────────────────────────


@given(histories())
def test_every_sampled_token_is_trained_exactly_once_with_its_own_logprob_and_version(turns: list[Turn]) -> None:
    samples = samples_of(member(turns, 1.0).trajectory)
    for field in ("token_ids", "logprobs", "versions"):
        sampled = np.concatenate([getattr(t.completion, field) for t in turns])
        trained = np.concatenate([getattr(s, field)[s.loss_mask] for s in samples])
        np.testing.assert_array_equal(trained, sampled)


@given(histories())
def test_the_context_of_each_completion_is_exactly_its_prompt(turns: list[Turn]) -> None:
    rows = [(s.token_ids.tolist(), s.images) for s in samples_of(member(turns, 1.0).trajectory)]
    for t in turns:
        want = [*t.prompt.token_ids.tolist(), *t.completion.token_ids.tolist()]
        assert any(
            row[: len(want)] == want and images[: len(t.prompt.images)] == t.prompt.images for row, images in rows
        )


@given(histories())
def test_what_the_policy_did_not_sample_has_no_version_and_no_logprob(turns: list[Turn]) -> None:
    for sample in samples_of(member(turns, 1.0).trajectory):
        assert (sample.versions[~sample.loss_mask] == -1).all()
        assert (sample.logprobs[~sample.loss_mask] == 0).all()


def test_turns_that_extend_one_another_share_a_sample() -> None:
    turns = [turn([1], [2]), turn([1, 2, 3], [4]), turn([9], [5])]
    first, second = samples_of(member(turns, 1.0).trajectory)
    assert first.token_ids.tolist() == [1, 2, 3, 4]
    assert first.loss_mask.tolist() == [False, True, False, True]
    assert second.token_ids.tolist() == [9, 5]


@pytest.mark.parametrize(
    "after",
    [
        turn([1, 2], [4], images=["a"]),  # shorter than what went before
        turn([1, 9, 3, 7], [4], images=["a"]),  # another answer in the middle
        turn([1, 2, 9, 7], [4], images=["a"]),  # another end of the answer
        turn([8, 2, 3, 7], [4], images=["a"]),  # another prompt
        turn([1, 2, 3, 7], [4], images=["b", "a"]),  # the image moved
        turn([1, 2, 3, 7], [4]),  # the image is gone
    ],
)
def test_an_edited_history_starts_a_sample_of_its_own(after: Turn) -> None:
    assert len(samples_of(member([turn([1], [2, 3], images=["a"]), after], 1.0).trajectory)) == 2


def test_images_of_later_turns_are_appended() -> None:
    turns = [turn([1], [2], images=["a"]), turn([1, 2, 3], [4], images=["a", "b"])]
    (sample,) = samples_of(member(turns, 1.0).trajectory)
    assert sample.images == ("a", "b")


# ── credit ────────────────────────────────────────────────────────────────────


def total(batch: Batch) -> dict[tuple[int, ...], np.ndarray]:
    """Credits by what was sampled in which context: (context ids, token) -> positive, negative, weight."""
    sums: dict[tuple[int, ...], np.ndarray] = defaultdict(lambda: np.zeros(3))
    for one in batch.samples:
        for at in np.flatnonzero(one.sample.loss_mask):
            context = (*one.sample.token_ids[: at + 1].tolist(), int(one.sample.versions[at]))
            sums[context] += [one.positive[at], one.negative[at], one.weights[at]]
    return sums


def credited(groups: list[ScoredGroup], aggregation: Aggregation) -> Credited:
    return credit(groups, Crediting(advantages=by_trajectory(centered), aggregation=aggregation, norm=64.0))


@pytest.mark.parametrize("aggregation", list(Aggregation))
@settings(max_examples=25)
@given(groups=rounds())
def test_merging_equal_samples_keeps_the_sum_of_credits(aggregation: Aggregation, groups: list[ScoredGroup]) -> None:
    merged = credited(groups, aggregation)
    if merged.batch is None:
        return
    assert len(merged.batch.samples) <= merged.sequences
    keys = [(s.sample.token_ids.tobytes(), s.sample.versions.tobytes(), s.sample.images) for s in merged.batch.samples]
    assert len(set(keys)) == len(keys)
    used = [(m, a) for g in merged.used for m, a in zip(g.members, centered(g.rewards), strict=True)]
    positive = sum(max(a, 0) * w for m, a in used for w in weights(m, used, aggregation))
    negative = sum(min(a, 0) * w for m, a in used for w in weights(m, used, aggregation))
    assert sum(s.positive.sum() for s in merged.batch.samples) == pytest.approx(positive, abs=1e-5)
    assert sum(s.negative.sum() for s in merged.batch.samples) == pytest.approx(negative, abs=1e-5)


def weights(
    one: ScoredTrajectory, used: list[tuple[ScoredTrajectory, np.float32]], aggregation: Aggregation
) -> list[float]:
    """The definition of each aggregation, trajectory by trajectory and turn by turn."""
    everything = [samples_of(m.trajectory) for m, _ in used]
    mine = samples_of(one.trajectory)
    sequences = sum(len(samples) for samples in everything)
    match aggregation:
        case Aggregation.TOKEN_MEAN:
            return [s.loss_mask.sum() / sum(o.loss_mask.sum() for all_ in everything for o in all_) for s in mine]
        case Aggregation.SEQ_MEAN_TOKEN_SUM:
            return [s.loss_mask.sum() / sequences for s in mine]
        case Aggregation.SEQ_MEAN_TOKEN_MEAN:
            return [1 / sequences for _ in mine]
        case Aggregation.SEQ_MEAN_TOKEN_SUM_NORM:
            return [s.loss_mask.sum() / 64.0 for s in mine]
        case Aggregation.TRAJECTORY_MEAN:
            return [1 / len(used) / len(one.trajectory.turns) for _ in one.trajectory.turns]


@pytest.mark.parametrize("aggregation", MEANS)
@settings(max_examples=25)
@given(groups=rounds())
def test_the_weights_of_a_mean_sum_to_one(aggregation: Aggregation, groups: list[ScoredGroup]) -> None:
    batch = credited(groups, aggregation).batch
    if batch is not None:
        assert sum(s.weights.sum() for s in batch.samples) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("aggregation", list(Aggregation))
@settings(max_examples=25)
@given(groups=rounds(), seed=st.integers(0, 99))
def test_the_order_of_groups_and_members_changes_nothing(
    aggregation: Aggregation, groups: list[ScoredGroup], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    shuffled = [replace(g, members=tuple(g.members[i] for i in rng.permutation(len(g.members)))) for g in groups[::-1]]
    one, other = credited(groups, aggregation).batch, credited(shuffled, aggregation).batch
    assert (one is None) == (other is None)
    if one is not None and other is not None:
        ones, others = total(one), total(other)
        assert ones.keys() == others.keys()
        for context, sums in ones.items():
            np.testing.assert_allclose(sums, others[context], atol=1e-6)


def test_equal_answers_to_equal_prompts_are_computed_once() -> None:
    won, lost = [turn([1], [2, 0])], [turn([1], [3, 0])]
    done = credited([group(member(won, 1.0), member(won, 1.0), member(lost, 0.0))], Aggregation.TOKEN_MEAN)
    assert (done.sequences, done.batch and len(done.batch.samples)) == (3, 2)
    assert done.batch is not None
    first, second = done.batch.samples
    np.testing.assert_allclose(first.positive, [0, 2 / 18, 2 / 18], rtol=1e-6)
    np.testing.assert_allclose(first.weights, [0, 2 / 6, 2 / 6], rtol=1e-6)
    np.testing.assert_allclose(second.negative, [0, -2 / 18, -2 / 18], rtol=1e-6)


def test_credits_of_both_signs_are_kept_apart() -> None:
    same = [turn([1], [2])]
    done = credited([group(member(same, 1.0), member(same, 0.0))], Aggregation.TOKEN_MEAN)
    assert done.batch is not None
    (only,) = done.batch.samples
    assert (only.positive[1], only.negative[1], only.weights[1]) == pytest.approx((0.25, -0.25, 1.0))


def test_other_versions_and_other_images_are_not_merged() -> None:
    turns = [
        [turn([1], [2])],
        [turn([1], [2], version=1)],
        [turn([1], [2], images=["a"])],
        [turn([1], [2], images=["b"])],
    ]
    done = credited([group(*[member(t, float(i % 2)) for i, t in enumerate(turns)])], Aggregation.TOKEN_MEAN)
    assert done.batch is not None
    assert len(done.batch.samples) == 4


def test_a_trajectory_mean_is_the_triple_mean() -> None:
    long = [turn([1], [2, 3]), turn([1, 2, 3, 4], [5]), turn([9], [6, 7, 8, 9])]
    done = credited([group(member(long, 1.0), member([turn([5], [5])], 0.0))], Aggregation.TRAJECTORY_MEAN)
    assert done.batch is not None
    joined, last, short = done.batch.samples
    third = 1 / 2 / 3
    np.testing.assert_allclose(joined.weights, [0, third / 2, third / 2, 0, third], rtol=1e-6)
    np.testing.assert_allclose(last.weights, [0, *[third / 4] * 4], rtol=1e-6)
    np.testing.assert_allclose(short.weights, [0, 1 / 2], rtol=1e-6)


@pytest.mark.parametrize("norm", [None, 0.0, -1.0])
def test_a_constant_denominator_must_be_given(norm: float | None) -> None:
    groups = [group(member([turn([1], [2])], 1.0), member([turn([1], [3])], 0.0))]
    normed = Crediting(advantages=by_trajectory(centered), aggregation=Aggregation.SEQ_MEAN_TOKEN_SUM_NORM, norm=norm)
    with pytest.raises(ConfigError, match="positive norm"):
        credit(groups, normed)


# ── groups without a gradient ─────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("rewards", "why"),
    [
        ([1.0, 1.0], NoGradient.ALL_SOLVED),
        ([0.0, 0.0], NoGradient.ALL_FAILED),
        ([-0.5, -0.5], NoGradient.ALL_FAILED),
        ([1.0], NoGradient.TOO_SMALL),
        ([], NoGradient.TOO_SMALL),
        ([0.0, 1.0], None),
        ([0.0, -0.5], None),
    ],
)
def test_a_group_says_why_it_gives_no_gradient(rewards: list[float], why: NoGradient | None) -> None:
    assert no_gradient(group(*[member([turn([1], [2])], r) for r in rewards])) is why


def test_equal_rewards_of_different_outcomes_give_no_gradient() -> None:
    cut = member([turn([1], [2])], 1.0, outcome=Outcome.FAILURE)
    assert no_gradient(group(member([turn([1], [2])], 1.0), cut)) is NoGradient.EQUAL_REWARDS


def test_groups_without_a_gradient_change_no_denominator_and_are_reported() -> None:
    useful = group(member([turn([1], [2])], 1.0), member([turn([1], [3])], 0.0), name="useful")
    idle = group(member([turn([1], [2])], 0.0), member([turn([1], [3])], 0.0), name="idle")
    alone = credited([useful], Aggregation.TOKEN_MEAN)
    both = credited([idle, useful], Aggregation.TOKEN_MEAN)
    assert alone.batch is not None
    assert both.batch is not None
    assert total(alone.batch).keys() == total(both.batch).keys()
    np.testing.assert_array_equal(alone.batch.samples[0].weights, both.batch.samples[0].weights)
    assert [(d.group.plan.group_id, d.why) for d in both.dropped] == [("idle", NoGradient.ALL_FAILED)]
    assert both.used == (useful,)


def test_a_round_without_a_gradient_has_no_batch() -> None:
    idle = group(member([turn([1], [2])], 0.0), member([turn([1], [3])], 0.0))
    done = credited([idle], Aggregation.TRAJECTORY_MEAN)
    assert done.batch is None
    assert len(done.dropped) == 1
