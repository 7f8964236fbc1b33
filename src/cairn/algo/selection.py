"""Which recorded states are worth learning at, by what a policy answered there. Pure functions over measurements."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What came of the answers at one state."""

    right: int
    tries: int  # that say something about the policy
    tokens: float  # mean length of an answer

    def __post_init__(self) -> None:
        if not 0 <= self.right <= self.tries:
            raise ValueError(f"need 0 <= right <= tries, got {self.right} of {self.tries}")


UI_R1_MIX: Mapping[str, float] = {"click": 101.0, "open": 19.0, "back": 9.0, "scroll": 5.0, "type": 2.0}
"""States of each kind of action among UI-R1's 136 (arXiv:2503.21620)."""
_RARE = 2.0  # what a kind counts that the mix does not name


def undecided(answers: Sequence[Answered]) -> list[int]:
    """Places where some answers are right and some wrong; neither teaches a group anything alone.

    GUI-R1 (arXiv:2504.10458) asks ten times.
    """
    return [place for place, own in enumerate(answers) if 0 < own.right < own.tries]


def difficult(answers: Sequence[Answered]) -> list[int]:
    """Places where every answer is wrong, those with the longest answers first (UI-R1: they need thought)."""
    failed = [place for place, own in enumerate(answers) if own.tries and not own.right]
    return sorted(failed, key=lambda place: -answers[place].tokens)


def diverse(ranked: Sequence[int], kinds: Sequence[str], *, size: int, mix: Mapping[str, float]) -> list[int]:
    """`size` of the ranked places, in which each kind of action has its share of the mix, the best ranked of each.

    Every kind that there is is represented where the size allows. What one kind lacks, the others make up for in
    their proportions. `kinds` are of all places; the result is in the order of places.
    """
    by_kind: defaultdict[str, list[int]] = defaultdict(list)
    for place in ranked:
        by_kind[kinds[place]].append(place)
    sizes = _quotas({kind: len(own) for kind, own in by_kind.items()}, size=size, mix=mix)
    return sorted(place for kind, own in by_kind.items() for place in own[: sizes[kind]])


def bottlenecks(goal: Sequence[Answered], sub_goal: Sequence[Answered]) -> list[int]:
    """Places that fail with the goal alone and succeed once the step's own goal is told, too (InfiGUI-R1).

    arXiv:2504.14239. A place succeeds where at least half of its answers are right.
    """
    if len(goal) != len(sub_goal):
        raise ValueError(f"every state is asked both ways, got {len(goal)} and {len(sub_goal)}")
    return [place for place, pair in enumerate(zip(goal, sub_goal, strict=True)) if _fails(pair[0]) and _does(pair[1])]


def _does(own: Answered) -> bool:
    return own.tries > 0 and 2 * own.right >= own.tries


def _fails(own: Answered) -> bool:
    return own.tries > 0 and 2 * own.right < own.tries


def _quotas(there: Mapping[str, int], *, size: int, mix: Mapping[str, float]) -> Counter[str]:
    """One by one to the kind that lacks most of its share: each kind once first, then in the mix's proportions."""
    given: Counter[str] = Counter()
    weights = {kind: mix.get(kind, _RARE) for kind in there}
    while given.total() < size:
        open_ = [kind for kind in there if given[kind] < there[kind]]
        if not open_:
            break
        # kinds without any come first, the weightiest of them; then whoever is furthest below its share
        given[min(open_, key=lambda kind: (given[kind] / weights[kind], -weights[kind], kind))] += 1
    return given
