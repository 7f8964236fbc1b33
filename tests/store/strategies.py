"""Groups of every shape, for round trips."""

import math

import numpy as np
from hypothesis import strategies as st

from cairn.data.action import (
    Answer,
    Back,
    Click,
    DoubleClick,
    Drag,
    Finish,
    FinishStatus,
    Home,
    Hover,
    Invalid,
    Key,
    LongPress,
    Open,
    Point,
    RightClick,
    Scroll,
    Type,
    Wait,
)
from cairn.data.history import Deed
from cairn.data.ids import ElementId, GroupId, ImageId, SnapshotId, TemplateId
from cairn.data.observation import Box, Element, Observation
from cairn.data.task import FromSnapshot, Purpose, Recorded, RolloutPlan, Root, Split, Task, Template
from cairn.data.trajectory import (
    RULES,
    Completion,
    Ending,
    Evidence,
    LostTrajectory,
    Outcome,
    Prompt,
    ScoredGroup,
    ScoredTrajectory,
    Seconds,
    Term,
    Trajectory,
    Turn,
)

text = st.text(max_size=8)
share = st.floats(0, 1)
real = st.floats(allow_nan=False, allow_infinity=False)
numbers = st.integers(0, 2**31 - 1)
target = numbers.map(ElementId) | st.builds(Point, share, share)

actions = st.one_of(
    *[st.builds(kind, target) for kind in (Click, DoubleClick, RightClick, LongPress, Hover)],
    st.builds(Drag, target, target),
    st.builds(Scroll, st.none() | target, real, real),
    st.builds(Type, text, st.none() | target),
    *[st.builds(kind, text) for kind in (Key, Open, Answer)],
    *[st.just(kind()) for kind in (Back, Home)],
    st.builds(Wait, real),
    st.builds(Finish, st.sampled_from(FinishStatus)),
    st.builds(Invalid, text, text),
)
boxes = st.builds(Box, left=real, top=real, width=real, height=real)
elements = st.builds(
    Element,
    id=numbers.map(ElementId),
    role=text,
    label=text,
    value=text,
    states=st.lists(text, max_size=2).map(tuple),
    interactive=st.booleans(),
    box=boxes,
)
observations = st.builds(
    Observation,
    image=st.none() | text.map(ImageId),
    elements=st.lists(elements, max_size=2).map(tuple),
    accessibility=text,
    url=text,
    digest=text,
    message=text,
    goal=text,
)


def ints(size: int) -> st.SearchStrategy[np.ndarray]:
    return st.lists(numbers, min_size=size, max_size=size).map(lambda v: np.array(v, np.int32))


@st.composite
def turns(draw: st.DrawFn) -> Turn:
    size = draw(st.integers(1, 3))
    logprobs = draw(st.lists(st.floats(width=32, max_value=0, allow_infinity=False), min_size=size, max_size=size))
    return Turn(
        observation=draw(observations),
        prompt=Prompt(token_ids=draw(ints(2)), images=tuple(draw(st.lists(text.map(ImageId), max_size=2)))),
        completion=Completion(
            token_ids=draw(ints(size)),
            logprobs=np.array(logprobs, np.float32),
            versions=draw(ints(size)),
            truncated=draw(st.booleans()),
        ),
        action=draw(actions),
    )


plans = st.builds(
    RolloutPlan,
    group_id=text.map(GroupId),
    task=st.builds(
        Task,
        template=st.builds(Template, id=text.map(TemplateId), max_turns=st.integers(1, 99)),
        split=st.sampled_from(Split),
        index=st.integers(0, 999_999),
    ),
    start=st.one_of(
        st.just(Root()),
        st.builds(FromSnapshot, id=text.map(SnapshotId)),
        st.builds(
            Recorded,
            goal=text,
            history=st.lists(st.builds(Deed, observation=observations, action=actions), max_size=2).map(tuple),
            observation=observations,
            expert=actions,
            target=st.none() | boxes,
            sub_goal=text,
        ),
    ),
    group_size=st.integers(1, 8),
    depth=st.integers(1, 9),
    purpose=st.sampled_from(Purpose),
    seed=st.integers(0, 2**63 - 1),
)
evidence = st.builds(Evidence, done=st.booleans(), raw_reward=real, state=text)
spent = st.builds(Seconds, opening=real, environment=real, engine=real, closing=real)
small = st.floats(-9, 9)
terms = st.lists(st.builds(Term, name=text, weight=small, value=small), max_size=3).map(tuple)
KEPT = [outcome for outcome, rule in RULES.items() if rule.in_baseline]


@st.composite
def groups(draw: st.DrawFn) -> ScoredGroup:
    plan = draw(plans)

    def trajectory(ending: Ending) -> Trajectory:
        lost = ending in (Ending.INFRASTRUCTURE_ERROR, Ending.CANCELLED)
        return Trajectory(
            plan=plan,
            sibling=draw(numbers),
            attempt=draw(numbers),
            goal=draw(text),
            turns=tuple(draw(st.lists(turns(), max_size=2))),
            ending=ending,
            evidence=None if lost else draw(evidence),
            error=draw(text) if ending is Ending.INFRASTRUCTURE_ERROR else None,
            seconds=draw(spent),
        )

    def judged_as(ending: Ending) -> ScoredTrajectory:
        found = draw(terms)
        reward = math.fsum(term.worth for term in found) if found else draw(real)
        outcome = draw(st.sampled_from(KEPT))
        return ScoredTrajectory(trajectory=trajectory(ending), outcome=outcome, reward=reward, terms=found)

    endings = st.sampled_from(Ending)
    judged = endings.filter(lambda e: e not in (Ending.INFRASTRUCTURE_ERROR, Ending.CANCELLED))
    return ScoredGroup(
        plan=plan,
        members=tuple(judged_as(e) for e in draw(st.lists(judged, max_size=2))),
        lost=tuple(
            LostTrajectory(trajectory=trajectory(e), outcome=draw(st.sampled_from(Outcome)), reason=draw(text))
            for e in draw(st.lists(endings, max_size=2))
        ),
    )
