import pytest

from cairn.errors import CircuitOpenError, InvariantError, SessionError, SetupError
from cairn.rollout.unwrap import one_error


@pytest.mark.parametrize(
    ("bundle", "told"),
    [
        ([CircuitOpenError("circuit")], CircuitOpenError),
        ([SessionError("gone"), SetupError("disk")], SetupError),
        ([CircuitOpenError("circuit"), ExceptionGroup("inner", [KeyError("bug")])], KeyError),
        ([ExceptionGroup("inner", [SessionError("gone"), InvariantError("ours")]), SetupError("disk")], InvariantError),
    ],
)
def test_the_most_telling_error_comes_out(bundle: list[Exception], told: type[Exception]) -> None:
    with pytest.raises(told), one_error():
        raise ExceptionGroup("outer", bundle)


def test_an_error_keeps_its_cause() -> None:
    gone = SessionError("gone")
    gone.__cause__ = OSError("pipe")
    with pytest.raises(SessionError) as caught, one_error():
        raise ExceptionGroup("outer", [gone])
    assert isinstance(caught.value.__cause__, OSError)


def test_other_errors_pass_unchanged() -> None:
    with pytest.raises(KeyError), one_error():
        raise KeyError("x")
