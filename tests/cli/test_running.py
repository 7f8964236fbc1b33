"""How a command ends when it is told to."""

import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager

import pytest

WORK = """
import asyncio, signal, sys, time
from cairn.cli.running import run_async

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
for one in {ignored}:
    signal.signal(one, signal.SIG_IGN)

async def work():
    print("working", flush=True)
    try:
        await asyncio.sleep(60)
    finally:
        print("saving", flush=True)
        {saving}
        print("saved", flush=True)

try:
    run_async(work())
except KeyboardInterrupt:
    sys.exit(130)
"""


@contextmanager
def working(saving: str = "pass", *, ignored: tuple[signal.Signals, ...] = ()) -> Generator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", WORK.format(saving=saving, ignored=[int(one) for one in ignored])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "working\n"
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_what_is_told_to_end_saves(sent: signal.Signals) -> None:
    with working() as process:
        process.send_signal(sent)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, "saving\nsaved\n")
    assert err == ("\nstopping; Ctrl-C again ends at once, without saving\n" if sent is signal.SIGINT else "")


@pytest.mark.parametrize("saving", ["await asyncio.sleep(60)", "time.sleep(60)"])
def test_a_second_ctrl_c_ends_it_at_once_without_a_traceback(saving: str) -> None:
    with working(saving) as process:
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        assert process.stdout.readline() == "saving\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err.endswith("without saving\nended at once\n")
    assert "Traceback" not in err


def test_being_told_twice_does_not_cut_the_saving_short() -> None:
    with working("await asyncio.to_thread(sys.stdin.readline)") as process:
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        assert process.stdout.readline() == "saving\n"
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(input="go on\n", timeout=30)
    assert (process.returncode, out) == (130, "saved\n")


def test_what_was_ignored_before_stays_ignored() -> None:
    with working(ignored=(signal.SIGHUP,)) as process:
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, "saving\nsaved\n")
    assert "stopping" in err
