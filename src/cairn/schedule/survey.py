"""Which checkpoints are pivots: each is measured once, before anything is learned from it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cairn.data.checkpoint import Track
from cairn.data.trajectory import ScoredGroup
from cairn.errors import ConfigError
from cairn.schedule.signals import Selection
from cairn.schedule.state import array, as_number


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A checkpoint, by number: of its track, and on it."""

    track: int
    checkpoint: int


class Survey:
    """Scores by checkpoint. Those that a group was lost for are asked for again."""

    def __init__(self, *, tracks: Sequence[Track], selection: Selection, seed: int) -> None:
        self._tracks = tuple(tracks)
        self._selection = selection
        self._scores: list[list[float | None]] = [[None] * len(track.checkpoints) for track in tracks]
        self._asked = 0  # of all places, in order
        self._again: list[Place] = []
        if not selection.measured:
            rng = np.random.default_rng(seed)
            self._scores = [[selection.unmeasured(rng) for _ in track.checkpoints] for track in tracks]
        self._places = self._missing()

    def next_place(self) -> Place | None:
        """The next one to ask for answers at; None where all have been asked for."""
        if self._again:
            return self._again.pop()
        if self._asked == len(self._places):
            return None
        self._asked += 1
        return self._places[self._asked - 1]

    def observe(self, place: Place, group: ScoredGroup) -> None:
        """The answers of a group that was asked for."""
        score = self._selection.score(group)
        if score is None:
            self._again.append(place)
        else:
            self._scores[place.track][place.checkpoint] = score

    @property
    def left(self) -> int:
        """Places that have not been asked for yet."""
        return len(self._places) - self._asked + len(self._again)

    def renew(self, *, left: int | None = None) -> None:
        """Measure every checkpoint again, or the last `left` of them; until then the old scores count."""
        if self._selection.measured:
            self._places = tuple(
                Place(track=track, checkpoint=checkpoint)
                for track, scores in enumerate(self._scores)
                for checkpoint in range(len(scores))
            )
            self._asked = 0 if left is None else max(0, len(self._places) - left)
            self._again = []

    def known(self, track: int) -> bool:
        """Whether every checkpoint of the track is measured."""
        return None not in self._scores[track]

    def score(self, track: int, checkpoint: int) -> float:
        """What was measured; 0 where nothing was yet."""
        return self._scores[track][checkpoint] or 0.0

    def pivots(self, track: int) -> tuple[int, ...]:
        """Checkpoints of the track that are pivots, from the root on."""
        scores = self._scores[track]
        return tuple(i for i, score in enumerate(scores) if score is not None and self._selection.keeps(score))

    def state(self) -> list[list[float | None]]:
        """For `load`."""
        return [list(scores) for scores in self._scores]

    def load(self, state: Mapping[str, object], key: str) -> None:
        """Scores of another process; what was asked for and not answered is asked for again."""
        rows = [array({key: row}, key) for row in array(state, key)]
        if [len(row) for row in rows] != [len(track.checkpoints) for track in self._tracks]:
            raise ConfigError(f"scheduler state: {key} is of other checkpoints than those of this run")
        self._scores = [[None if value is None else as_number(value, key) for value in row] for row in rows]
        self._places, self._asked, self._again = self._missing(), 0, []

    def _missing(self) -> tuple[Place, ...]:
        return tuple(
            Place(track=track, checkpoint=checkpoint)
            for track, scores in enumerate(self._scores)
            for checkpoint, score in enumerate(scores)
            if score is None
        )
