"""How far two raters agree: a judge, and a checker that is right."""

from collections.abc import Sequence
from dataclasses import dataclass

from cairn.algo.statistics import Interval, wilson


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """The four counts of a confusion matrix; "yes" is a success."""

    both: int  # judge yes, checker yes
    judge_alone: int  # judge yes, checker no: what would be rewarded though it is wrong
    checker_alone: int  # judge no, checker yes
    neither: int

    def __post_init__(self) -> None:
        if min(self.both, self.judge_alone, self.checker_alone, self.neither) < 0 or not self.count:
            raise ValueError("an agreement is counted over at least one case, and no count is negative")

    @property
    def count(self) -> int:
        """Cases that both have rated."""
        return self.both + self.judge_alone + self.checker_alone + self.neither

    @property
    def accuracy(self) -> Interval:
        """The share of cases in which the judge says what the checker says."""
        return wilson(self.both + self.neither, self.count)

    @property
    def kappa(self) -> float:
        """Cohen's kappa: agreement beyond chance, in [-1, 1]; 0 where both say one and the same of everything.

        (observed - expected) / (1 - expected), with the agreement that is expected of raters who only keep their shares
        of "yes" (J. Cohen 1960). Where that is certain, nothing was shown.
        """
        total = self.count
        judged, checked = self.both + self.judge_alone, self.both + self.checker_alone
        expected = (judged * checked + (total - judged) * (total - checked)) / total**2
        observed = (self.both + self.neither) / total
        return (observed - expected) / (1 - expected) if expected < 1 else 0.0

    @property
    def precision(self) -> float | None:
        """Of what the judge calls a success, the share that is one; None where it calls nothing so."""
        judged = self.both + self.judge_alone
        return self.both / judged if judged else None

    @property
    def recall(self) -> float | None:
        """Of the successes, the share that the judge calls one; None where there are none."""
        checked = self.both + self.checker_alone
        return self.both / checked if checked else None


def agreement(judged: Sequence[bool], checked: Sequence[bool]) -> Agreement:
    """Count what both say of the same cases, in the same order."""
    pairs = list(zip(judged, checked, strict=True))
    return Agreement(
        both=pairs.count((True, True)),
        judge_alone=pairs.count((True, False)),
        checker_alone=pairs.count((False, True)),
        neither=pairs.count((False, False)),
    )
