"""Rewards that look at more than right or wrong: lengths, formats, gates. Each with its source."""

from collections.abc import Sequence


def length_budget(lengths: Sequence[int], correct: Sequence[bool], *, longest: int | None = None) -> list[float]:
    """DAST's reward of each answer's length in its group (UI-R1-E, arXiv:2503.21620).

    `lengths` are of sampled tokens, end token included, padding not. The budget lies between the mean length of the
    right answers and the longest one (`longest`: the limit of generation in its place), the nearer the former the more
    answers are right. Right answers earn more the shorter they are, wrong ones lose less the longer they are.
    """
    if len(lengths) != len(correct) or not lengths:
        raise ValueError("a length and a verdict for each answer of a group, and at least one")
    most = max(lengths) if longest is None else longest
    share = sum(correct) / len(correct)
    right = [length for length, is_right in zip(lengths, correct, strict=True) if is_right]
    budget = share * (sum(right) / len(right)) + (1 - share) * most if right else float(most)
    if budget <= 0:
        raise ValueError("lengths are of at least one token")
    return [
        _of_length((length - budget) / budget, right=is_right)
        for length, is_right in zip(lengths, correct, strict=True)
    ]


def _of_length(excess: float, *, right: bool) -> float:
    return max(-0.5 * excess + 0.5, 0.1) if right else min(0.9 * excess - 0.1, -0.1)


def overlong(length: int, *, limit: int, buffer: int, factor: float = 1.0) -> float:
    """DAPO's penalty in the last `buffer` tokens before the limit, from 0 to -factor (arXiv:2503.14476)."""
    return max(-factor, min(0.0, -(length - (limit - buffer)) / buffer * factor))


def gated(*, well_formed: bool, accuracy: float, weight: float = 0.1) -> float:
    """InfiGUI-R1's total: the format's weight, and the rest for an accuracy that counts where it is well formed."""
    return weight + (1 - weight) * accuracy if well_formed else 0.0


def agent_accuracy(*, right_type: bool, right_parameters: bool, sub_goal: float = 0.0) -> float:
    """InfiGUI-R1: 0.2 for the type, 0.8 for all parameters; without these 0.2 x agreement with the sub-goal."""
    kind = 0.2 * right_type
    return kind + 0.8 if right_type and right_parameters else kind + 0.2 * sub_goal


def well_formed_share(formed: Sequence[bool]) -> float:
    """2 x the share of well-formed turns - 1, in [-1, 1] (Mobile-R1's third stage; the exact form is ours)."""
    return 2.0 * sum(formed) / len(formed) - 1.0 if formed else -1.0


def shortest_path(success: float, *, turns: int, shortest: int, weight: float) -> float:
    """MobileRL's reward of a success, less for every turn beyond the shortest known way (arXiv:2509.18119)."""
    return success * (1.0 - weight * (turns - shortest) / turns) if turns else success


def progress(
    share: float, *, reached: bool, side_effects: bool = False, aborted: bool = False, finished: bool = True
) -> float:
    """MobileGym's shaped outcome (arXiv:2605.26114) from the share of checks that passed.

    x 0.8 for a goal with side effects or a finish without the goal; x 0.5 for an abort after the goal, or no finish.
    """
    value = share
    if reached and side_effects:
        value *= 0.8
    if reached and aborted:
        value *= 0.5
    if reached and not finished and not aborted:
        value *= 0.5
    if finished and not reached:
        value *= 0.8
    return value
