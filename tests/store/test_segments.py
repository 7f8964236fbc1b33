import errno
import os
import random
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cairn.errors import SetupError, StoreError
from cairn.store.journal import Journal, scan
from cairn.store.segments import SegmentStore, read_groups
from cairn.testing.memory import MemoryStore
from cairn.testing.same import same_groups
from cairn.testing.store_contract import STORE_CONTRACT, Check, made_up


def names(folder: Path) -> list[str]:
    """Without checksums."""
    return sorted(re.sub(r"\.[0-9a-f]{8}\.parquet", ".parquet", p.name) for p in folder.iterdir())


@pytest.mark.parametrize("check", STORE_CONTRACT, ids=lambda c: c.__name__)
@pytest.mark.parametrize("size", [1, 3, 100])
def test_a_folder_of_segments_keeps_the_contract(tmp_path: Path, check: Check, size: int) -> None:
    check(lambda: SegmentStore(tmp_path / "store", groups_per_segment=size))


@pytest.mark.parametrize("check", STORE_CONTRACT, ids=lambda c: c.__name__)
def test_the_memory_store_keeps_the_contract(check: Check) -> None:
    check(MemoryStore)


def test_what_was_appended_is_there_after_opening_again(tmp_path: Path) -> None:
    groups = made_up(10)
    for group in groups:
        store = SegmentStore(tmp_path, groups_per_segment=4)
        store.append(group)
        store.close()
        store.close()
    assert same_groups(read_groups(tmp_path), groups)
    assert names(tmp_path) == ["000000.parquet", "000001.parquet", "000002.journal"]


def test_compacting_an_empty_journal_does_nothing(tmp_path: Path) -> None:
    store = SegmentStore(tmp_path)
    store.compact()
    assert names(tmp_path) == ["000000.journal"]


def test_a_torn_tail_is_cut_off_and_reported(tmp_path: Path) -> None:
    groups = made_up(3)
    store = SegmentStore(tmp_path)
    for group in groups:
        store.append(group)
    store.close()
    journal = tmp_path / "000000.journal"
    whole = journal.read_bytes()
    for cut in range(len(scan_prefix(whole, 2)) + 1, len(whole), 23):
        journal.write_bytes(whole[:cut])
        assert same_groups(read_groups(tmp_path), groups[:2])
        again = SegmentStore(tmp_path)
        assert again.torn_bytes > 0
        again.append(groups[2])
        again.close()
        assert same_groups(read_groups(tmp_path), groups)


def scan_prefix(data: bytes, records: int) -> bytes:
    at = 0
    for _ in range(records):
        at += 12 + int.from_bytes(data[at + 4 : at + 8], "little")
    return data[:at]


def test_damage_in_the_middle_of_a_journal_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    store = SegmentStore(tmp_path)
    for group in made_up(3):
        store.append(group)
    store.close()
    journal = tmp_path / "000000.journal"
    data = bytearray(journal.read_bytes())
    data[20] ^= 0xFF
    journal.write_bytes(data)
    with pytest.raises(StoreError, match=r"000000\.journal is damaged at byte 0"):
        list(read_groups(tmp_path))
    with pytest.raises(StoreError):
        SegmentStore(tmp_path)


def test_a_damaged_segment_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    store = SegmentStore(tmp_path, groups_per_segment=2)
    for group in made_up(4):
        store.append(group)
    store.close()
    (segment,) = tmp_path.glob("000001.*.parquet")
    whole = segment.read_bytes()
    for place in (0, 10, len(whole) // 2, len(whole) - 20):
        data = bytearray(whole)
        data[place] ^= 0xFF
        segment.write_bytes(data)
        with pytest.raises(StoreError, match=r"000001\..*\.parquet is damaged"):
            list(read_groups(tmp_path))
    segment.write_bytes(whole[:50])
    with pytest.raises(StoreError, match=r"000001\..*\.parquet is damaged"):
        list(read_groups(tmp_path))


def test_a_crash_between_segment_and_journal_doubles_nothing(tmp_path: Path) -> None:
    groups = made_up(3)
    store = SegmentStore(tmp_path)
    for group in groups:
        store.append(group)
    kept = (tmp_path / "000000.journal").read_bytes()
    store.compact()
    store.close()
    (tmp_path / "000001.journal").unlink()
    (tmp_path / "000000.journal").write_bytes(kept)
    assert same_groups(read_groups(tmp_path), groups)
    again = SegmentStore(tmp_path)
    assert same_groups(again.read(), groups)
    assert names(tmp_path) == ["000000.parquet", "000001.journal"]


def test_what_a_killed_compaction_left_is_swept(tmp_path: Path) -> None:
    (tmp_path / ".unfinished-abc").write_bytes(b"half")
    SegmentStore(tmp_path)
    assert names(tmp_path) == ["000000.journal"]


def test_a_reader_follows_a_compaction_that_overtakes_it(tmp_path: Path) -> None:
    groups = made_up(4)
    store = SegmentStore(tmp_path, groups_per_segment=100)
    store.append(groups[0])
    store.compact()
    store.append(groups[1])
    reader = read_groups(tmp_path)
    first = next(reader)
    store.compact()
    store.append(groups[2])
    assert same_groups([first, *reader], groups[:3])


def test_a_full_disk_is_one_clear_sentence_and_hides_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = made_up(3)
    store = SegmentStore(tmp_path)
    store.append(groups[0])
    real = os.write

    def nearly_full(descriptor: int, data: memoryview) -> int:
        if len(data) > 20:
            return real(descriptor, data[:20])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(os, "write", nearly_full)
        with pytest.raises(SetupError, match=r"no space left for .*000000\.journal: free some"):
            store.append(groups[1])
    store.append(groups[2])
    assert same_groups(store.read(), [groups[0], groups[2]])


@pytest.mark.parametrize(
    ("number", "says"), [(errno.EACCES, "no permission to write"), (errno.EIO, "cannot write"), (errno.EDQUOT, "space")]
)
def test_the_disk_speaks_plainly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, says: str) -> None:
    journal = Journal(tmp_path / "j", sync=True)

    def refuse(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fdatasync", refuse)
    with pytest.raises(SetupError, match=says):
        journal.append(b"x")
    assert scan(tmp_path / "j").records == ()


def test_a_failed_compaction_leaves_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = made_up(2)
    store = SegmentStore(tmp_path)
    for group in groups:
        store.append(group)

    def refuse(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(os, "fsync", refuse)
        with pytest.raises(SetupError, match="no space left"):
            store.compact()
    assert names(tmp_path) == ["000000.journal"]
    assert same_groups(store.read(), groups)


WRITER = """
import sys
from pathlib import Path
from cairn.store.segments import SegmentStore
from cairn.testing.store_contract import made_up

store = SegmentStore(Path(sys.argv[1]), groups_per_segment=5, sync=False)
done = sum(1 for _ in store.read())
print("open", done, flush=True)
for number, group in enumerate(made_up(100_000)[done:], start=done):
    store.append(group)
    print(number, flush=True)
"""


@pytest.mark.slow
def test_kill_9_loses_nothing_that_was_appended_and_leaves_nothing_torn(tmp_path: Path) -> None:
    rng = random.Random(5)
    store = tmp_path / "store"
    promised = 0
    for _ in range(4):
        promised = max(promised, kill_at_random(store, rng.randint(1, 25)))
        groups = list(read_groups(store))
        assert len(groups) >= promised
        assert same_groups(groups, made_up(len(groups)))
    assert promised > 10


def kill_at_random(store: Path, after: int) -> int:
    """Start a writer, kill it in the middle of an append, and return how many groups it promised."""
    command = [sys.executable, "-c", WRITER.replace("100_000", "400"), str(store)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        promised = int(writer.stdout.readline().split()[1])
        for _ in range(after):
            promised = int(writer.stdout.readline()) + 1
        writer.send_signal(signal.SIGKILL)
        rest = writer.stdout.read().split()
    return int(rest[-1]) + 1 if rest else promised
