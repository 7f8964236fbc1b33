"""The campaign of faults: that it strikes, and that it would tell."""

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from cairn.bench.sabotage import Fault, Phase, Saboteur, Strike
from cairn.bench.sabotaged import Cycle
from cairn.bench.snapshot_faults import (
    Remains,
    SnapshotFaults,
    counted,
    faults_json,
    faults_table,
    sabotage_snapshots,
)
from snapshots.confined import mounted
from snapshots.needs import needs_criu

NONE = Remains(processes=(), groups=(), mounts=(), files=())


def saboteur(folder: Path, *, seed: int = 0) -> Saboteur:
    return Saboteur(memory=folder, dice=random.Random(seed))


def test_every_fault_is_drawn_in_the_phases_that_it_can_strike(tmp_path: Path) -> None:
    strikes = [saboteur(tmp_path, seed=seed).drawn() for seed in range(200)]
    assert {strike.fault for strike in strikes} == set(Fault)
    phases = {fault: {strike.phase for strike in strikes if strike.fault is fault} for fault in Fault}
    assert phases[Fault.DUMP] == {Phase.SAVE}
    assert phases[Fault.RESTORE] == phases[Fault.DAMAGE] == {Phase.OPEN}
    assert phases[Fault.FULL] == {Phase.SAVE, Phase.OPEN}


def test_damage_changes_one_file_in_its_phase_alone(tmp_path: Path) -> None:
    for seed in range(30):
        image = tmp_path / str(seed)
        image.mkdir()
        for name in ("pages", "core"):
            (image / name).write_bytes(bytes(range(100)))
        strike = Strike(fault=Fault.DAMAGE, phase=Phase.OPEN)
        with saboteur(tmp_path, seed=seed).striking(strike, Phase.SAVE, image=image):
            assert not strike.struck
        with saboteur(tmp_path, seed=seed).striking(strike, Phase.OPEN, image=image):
            left = [path.read_bytes() for path in image.iterdir()]
        assert strike.struck
        assert left.count(bytes(range(100))) == 1
    unseen = Strike(fault=Fault.DAMAGE, phase=Phase.OPEN)
    with saboteur(tmp_path).striking(unseen, Phase.OPEN, image=tmp_path / "moved to disk"):
        assert not unseen.struck


def test_a_full_memory_is_full_for_as_long_as_the_block_lasts(tmp_path: Path) -> None:
    with mounted(tmp_path / "memory", size=64 << 20) as memory:
        strike = Strike(fault=Fault.FULL, phase=Phase.SAVE)
        with saboteur(memory).striking(strike, Phase.SAVE):
            assert strike.struck
            assert shutil.disk_usage(memory).free <= 24 << 20
        assert shutil.disk_usage(memory).free > 60 << 20


def test_only_the_last_that_was_noted_of_a_cycle_counts() -> None:
    begun = Cycle(number=0, fault="one", phase="save", ended=False)
    killed = Cycle(number=1, fault="one", phase="save", ended=False)
    ended = replace(begun, ended=True, struck=False, saved=True, opened=True)
    (count,) = counted([begun, killed, ended])
    assert (count.fault, count.tried, count.struck, count.saved, count.opened) == ("one", 2, 1, 1, 1)


def test_whatever_must_not_be_makes_the_result_not_ok() -> None:
    good = SnapshotFaults(
        seed=0, seconds=1.0, counts=(), owners_killed=1, refused=5, reviewed=1, wrong=(), remains=NONE
    )
    assert good.ok
    assert not replace(good, wrong=("a branch was opened in a wrong state",)).ok
    assert not replace(good, remains=replace(NONE, groups=("/sys/fs/cgroup/pids/cairn-1-2-3-4",))).ok
    assert json.loads(faults_json(good))["ok"] is True
    assert faults_table(good).row_count == 0


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.enable_socket
@pytest.mark.timeout(600)
def test_a_few_faults_of_a_real_campaign() -> None:
    needs_criu()
    told: list[str] = []
    result = sabotage_snapshots(faults=6, seed=3, progress=told.append)
    assert result.faults == 6
    assert (result.wrong, result.remains) == ((), NONE)
    assert told[-1].startswith("6 of 6 faults")
