"""One error out of a task group's bundle, so that callers catch what was raised."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import cast

from cairn.errors import CairnError, CircuitOpenError


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
    """A bug of our own or a full disk says more than the open circuit that it may have caused."""
    if isinstance(error, CircuitOpenError):
        return 1
    return 2 if isinstance(error, CairnError) else 0
