"""Who still needs which snapshot."""

from collections import Counter

from cairn.data.ids import SnapshotId


class References:
    """Counts by snapshot. One that nobody was counted for has one reference: its place on the shelf."""

    def __init__(self) -> None:
        self._more: Counter[SnapshotId] = Counter()  # than that one

    def retain(self, snapshot: SnapshotId) -> None:
        """One more."""
        self._more[snapshot] += 1

    def release(self, snapshot: SnapshotId) -> bool:
        """One less; whether that was the last."""
        self._more[snapshot] -= 1
        if self._more[snapshot] >= 0:
            return False
        del self._more[snapshot]
        return True
