"""What dead processes of Cairn's have left on this machine."""

from collections.abc import Sequence
from pathlib import Path

from cairn.snapshots.containers.leftovers import Kind, Leftover, leftovers
from cairn.snapshots.containers.leftovers import clean as remove
from cairn.snapshots.home import Home, orphaned_images


def abandoned_things(folders: Sequence[Path]) -> tuple[Leftover, ...]:
    """Everything of dead owners; in `folders` there may be snapshots that were begun and never finished."""
    homes = [Home(folder=folder) for folder in folders if folder.is_dir()]
    kept = [place for home in homes for place in (home.memory, home.disk, home.states, home.shelf)]
    images = [
        Leftover(kind=Kind.FOLDER, what="images of a folder that is gone", where=path, owner="")
        for path in orphaned_images()
    ]
    return (*leftovers(kept=kept), *images)


def remove_things(found: Sequence[Leftover]) -> tuple[Leftover, ...]:
    """Remove them; those that are still there afterwards."""
    return remove(found)
