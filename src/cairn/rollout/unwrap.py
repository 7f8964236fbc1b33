"""One error out of a task group's bundle, so that callers catch what was raised."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import cast

from cairn.errors import BoundaryError, CairnError, InvariantError


@contextmanager
def one_error() -> Generator[None]:
    """Raise the most telling error of an exception group in its place; the others came of the same stop."""
    try:
        yield
    except BaseExceptionGroup as group:
        error = min(_leaves(group), key=_rank)
        raise error from error.__cause__


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for inner in group.exceptions:
        if isinstance(inner, BaseExceptionGroup):
            yield from _leaves(cast("BaseExceptionGroup[BaseException]", inner))
        else:
            yield inner


def _rank(error: BaseException) -> int:
    """A bug of our own says more than the stop that it led to, and a full disk more than a cut connection."""
    if isinstance(error, InvariantError) or not isinstance(error, CairnError):
        return 0
    return 2 if isinstance(error, BoundaryError) else 1
