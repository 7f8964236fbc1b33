"""Control groups under both versions: limits that hold, limits that cannot be had, and their end."""

import errno
import secrets
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cairn.scratch import is_gone, mark, mark_in
from cairn.snapshots.containers.cgroups import ROOT, ControlGroup, marked_groups, members

MEMORY, PROCESSES = 64 << 20, 20


def kernel(root: Path, monkeypatch: pytest.MonkeyPatch, *files: str) -> str:
    """A root whose next group has these files already, as if the kernel had made them; the group's name."""
    monkeypatch.setattr(secrets, "token_hex", lambda _count: "0")
    name = f"cairn-{mark()}-0"
    for file in files:
        path = root / file.replace("GROUP", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return name


def test_version_two_has_one_group_with_both_limits_and_no_swap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = ("GROUP/memory.max", "GROUP/memory.swap.max", "GROUP/pids.max", "cgroup.controllers")
    name = kernel(tmp_path, monkeypatch, *files)
    group = ControlGroup.make(memory=MEMORY, processes=PROCESSES, root=tmp_path)
    assert group.folders == (tmp_path / name,)
    assert group.unlimited == ()
    written = [(tmp_path / name / file).read_text() for file in ("memory.max", "memory.swap.max", "pids.max")]
    assert written == [str(64 << 20), "0", "20"]
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+pids"  # the last that was asked for


def test_version_one_has_a_group_for_each_controller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = ("memory/GROUP/memory.limit_in_bytes", "memory/GROUP/memory.memsw.limit_in_bytes", "pids/GROUP/pids.max")
    name = kernel(tmp_path, monkeypatch, *files)
    group = ControlGroup.make(memory=MEMORY, processes=PROCESSES, root=tmp_path)
    assert group.folders == (tmp_path / "memory" / name, tmp_path / "pids" / name)
    assert group.unlimited == ()
    assert (tmp_path / "memory" / name / "memory.limit_in_bytes").read_text() == str(64 << 20)
    assert (tmp_path / "memory" / name / "memory.memsw.limit_in_bytes").read_text() == str(64 << 20)
    assert (tmp_path / "pids" / name / "pids.max").read_text() == "20"


@pytest.mark.parametrize(
    ("files", "unlimited"),
    [
        (("cgroup.controllers", "GROUP/pids.max"), ("memory",)),  # switched off by whoever owns the hierarchy
        (("cgroup.controllers",), ("memory", "pids")),
        (("memory/GROUP/memory.limit_in_bytes",), ("pids",)),
        ((), ("memory", "pids")),
    ],
)
def test_a_limit_that_cannot_be_had_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: tuple[str, ...], unlimited: tuple[str, ...]
) -> None:
    kernel(tmp_path, monkeypatch, *files)
    assert ControlGroup.make(memory=MEMORY, processes=PROCESSES, root=tmp_path).unlimited == unlimited


def test_a_command_joins_its_groups_first(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    group = ControlGroup(folders=(tmp_path / "one", tmp_path / "other"), unlimited=(), outside=tmp_path)
    ran = subprocess.run(group.joining(["echo", "a b", "c"]), check=True, capture_output=True, text=True)
    assert ran.stdout == "a b c\n"
    assert [(tmp_path / name / "cgroup.procs").read_text() for name in ("one", "other")] == ["0\n", "0\n"]
    free = ControlGroup(folders=(), unlimited=("memory", "pids"), outside=tmp_path)
    assert free.joining(["true"]) == ["true"]


@pytest.fixture
def made() -> Callable[..., ControlGroup]:
    def make(processes: int = PROCESSES) -> ControlGroup:
        group = ControlGroup.make(memory=MEMORY, processes=processes)
        if group.unlimited:
            group.remove()
            pytest.skip(f"this host has no control group that limits {' and '.join(group.unlimited)}")
        return group

    return make


def test_groups_carry_their_owner_and_take_their_members_with_them(made: Callable[..., ControlGroup]) -> None:
    group = made()
    assert {mark_in(folder.name) for folder in group.folders} == {mark()}
    assert not is_gone(mark())
    assert set(group.folders) <= set(marked_groups())
    with subprocess.Popen(group.joining(["sh", "-c", "sleep 1000 & sleep 1000"])) as process:
        while len(members(group.folders[-1])) < 2 and process.poll() is None:
            pass
        group.remove()
        assert process.wait(10) == -9
    assert not any(folder.exists() for folder in group.folders)
    group.remove()


FORKS = """
import os, signal
children = []
try:
    while len(children) < 50:
        child = os.fork()
        if not child:
            signal.pause()
        children.append(child)
except OSError as error:
    print(error.errno, len(children))
for child in children:
    os.kill(child, 9)
"""


def test_the_kernel_holds_members_to_the_limits(made: Callable[..., ControlGroup]) -> None:
    group = made(processes=5)
    try:
        greedy = subprocess.run(
            group.joining(["python3", "-c", "kept = bytearray(b'x' * (200 << 20))"]), check=False, capture_output=True
        )
        assert greedy.returncode == -9
        many = subprocess.run(group.joining(["python3", "-c", FORKS]), check=True, capture_output=True, text=True)
        assert many.stdout.split() == [str(errno.EAGAIN), "4"]  # itself and four more
    finally:
        group.remove()


def test_version_two_holds_members_to_the_limits_too(made: Callable[..., ControlGroup]) -> None:
    """Where this host has it; else a skip says that only version 1 was proved here."""
    if not (ROOT / "cgroup.controllers").exists():
        pytest.skip("this host has version 1: that version 2 enforces what is written to it was not tested")
    test_the_kernel_holds_members_to_the_limits(made)
