"""What a run came to, in the few numbers that people compare."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cairn.data.recorded import Recovery
from cairn.loop.progress import Measured, Phase, Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Success on held-out tasks in [0, 1]; None where it was not measured. Sampled at T = 1 unless called greedy."""

    heldout_bc: float | None
    heldout_rl: float | None
    heldout_gain: float | None
    greedy_bc: float | None
    greedy_rl: float | None
    greedy_gain: float | None
    recovery_bc: float | None  # accuracy at held-out states after a wrong action, greedy
    recovery_rl: float | None
    recovery_gain: float | None
    reward_bc: float | None  # mean over held-out tries, sampled
    reward_rl: float | None
    tokens_bc: float | None  # sampled for one answer
    tokens_rl: float | None
    heldout_control: float | None
    greedy_control: float | None
    episodes: int  # of the smallest of these evaluations
    lost: int  # to outside failures, in all of them
    learning_minutes: float  # imitation and reinforcement, rollouts included, evaluation not


def summarise(progress: Progress) -> Summary:
    """The ends of the phases."""

    def success(phase: Phase, *, greedy: bool) -> float | None:
        found = progress.final(phase, greedy=greedy)
        return None if found is None else found.mean

    bc, rl = (success(p, greedy=False) for p in (Phase.IMITATE, Phase.REINFORCE))
    greedy_bc, greedy_rl = (success(p, greedy=True) for p in (Phase.IMITATE, Phase.REINFORCE))
    before, after = (_recovery(progress.final(p, greedy=True)) for p in (Phase.IMITATE, Phase.REINFORCE))
    start, end = (progress.final(p, greedy=False) for p in (Phase.IMITATE, Phase.REINFORCE))
    ends = _ends(progress)
    return Summary(
        heldout_bc=bc,
        heldout_rl=rl,
        heldout_gain=_gain(bc, rl),
        greedy_bc=greedy_bc,
        greedy_rl=greedy_rl,
        greedy_gain=_gain(greedy_bc, greedy_rl),
        recovery_bc=before,
        recovery_rl=after,
        recovery_gain=_gain(before, after),
        reward_bc=None if start is None else start.reward,
        reward_rl=None if end is None else end.reward,
        tokens_bc=None if start is None else start.answer_tokens,
        tokens_rl=None if end is None else end.answer_tokens,
        heldout_control=success(Phase.CONTROL, greedy=False),
        greedy_control=success(Phase.CONTROL, greedy=True),
        episodes=min((m.episodes for m in ends), default=0),
        lost=sum(m.lost for m in ends),
        learning_minutes=sum(progress.phase_seconds.get(p, 0.0) for p in (Phase.IMITATE, Phase.REINFORCE)) / 60,
    )


def _recovery(measured: Measured | None) -> float | None:
    """The mean of escaping and of being back on track, which have one state each of every scenario, or a few more."""
    parts = [] if measured is None else [measured.by_kind[kind] for kind in Recovery if kind in measured.by_kind]
    return sum(parts) / len(parts) if parts else None


def _ends(progress: Progress) -> list[Measured]:
    return [m for m in progress.measured if m.final and m.split == "held_out"]


def _gain(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else after - before


_COLUMNS = (
    "seed", "phase", "minutes", "split", "greedy", "final", "episodes", "lost",
    "mean", "low", "high", "reward", "tokens",
)  # fmt: skip


def write_csv(path: Path, runs: Sequence[tuple[int, Progress]]) -> None:
    """Every evaluation of the runs, each with its seed, a line each."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file)
        lines.writerow(_COLUMNS)
        for seed, progress in runs:
            for m in progress.measured:
                numbers = (f"{x:.4f}" for x in (m.mean, m.low, m.high, m.reward, m.answer_tokens))
                lines.writerow(
                    [seed, m.phase, f"{m.minutes:.2f}", m.split, m.greedy, m.final, m.episodes, m.lost, *numbers]
                )
