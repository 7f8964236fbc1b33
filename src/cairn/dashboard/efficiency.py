"""Methods compared as a picture: success against environment steps and against samples."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """One method's success in %, with the half width of its interval, at what was spent."""

    name: str
    spent: Sequence[float]
    mean: Sequence[float]
    margin: Sequence[float]


def draw_efficiency(steps: Sequence[Band], samples: Sequence[Band], path: Path, *, title: str) -> None:
    """Write a PNG with two panels. A method that executes nothing is a point at no steps."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 4.2), dpi=150, layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    _draw(left, steps, "environment steps of learning")
    _draw(right, samples, "samples in updates")
    left.set_ylabel("success at the training tasks, %")
    right.legend(fontsize=7, loc="lower right")
    figure.suptitle(title, fontsize=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def _draw(axes: "Axes", bands: Sequence[Band], name: str) -> None:
    for number, band in enumerate(bands):
        colour = f"C{number}"
        if len(band.spent) == 1:
            axes.errorbar(band.spent, band.mean, yerr=band.margin, color=colour, fmt="o", markersize=4, label=band.name)
            continue
        axes.plot(band.spent, band.mean, color=colour, linewidth=1.6, label=band.name)
        low = [mean - margin for mean, margin in zip(band.mean, band.margin, strict=True)]
        high = [mean + margin for mean, margin in zip(band.mean, band.margin, strict=True)]
        axes.fill_between(band.spent, low, high, color=colour, alpha=0.12, linewidth=0)
    axes.set_xlabel(name)
    axes.set_xlim(left=0)
    axes.set_ylim(0, 100)
    axes.grid(alpha=0.3)
