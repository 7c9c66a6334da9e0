import os
import sqlite3
import threading
from itertools import pairwise
from pathlib import Path

import pytest

from twoclocks.client.ledger import Ledger
from twoclocks.client.rows import Item
from twoclocks.client.spool import Spool, default_folder, file_of

BODY = '{"step":%d}'


def item(step: int, attempt: int = 1) -> Item:
    return Item("report", attempt, BODY % step)


def open_spool(path: Path, limit: int = 2**20) -> Spool:
    return Spool(path, limit=limit, ledger=Ledger())


def steps(spool: Spool) -> list[int]:
    """The steps that wait, in the order in which they would be sent."""
    found = []
    while batch := spool.head(1_000, 2**20):
        found += [int(each.body.split(":")[1].rstrip("}")) for each in batch if each.kind == "report"]
        spool.remove(batch)
    return found


def test_what_waits_outlives_the_process_and_comes_back_in_order(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "folder" / "run.sqlite3"
    first = open_spool(path)
    first.remember(1, '{"attempt":1}')
    assert first.add([item(0), item(1), item(2)])
    first.close()
    second = open_spool(path)
    assert (second.rows, second.specs()) == (3, {1: '{"attempt":1}'})
    assert steps(second) == [0, 1, 2]
    second.close()


def test_an_older_attempt_goes_first_and_a_batch_is_of_one_attempt(tmp_path: Path) -> None:
    spool = open_spool(tmp_path / "a")
    spool.add(
        [item(7, attempt=2), item(3, attempt=1), item(8, attempt=2), Item("finish", 2, "{}"), item(9, 2)]
    )
    seen = []
    while batch := spool.head(1_000, 2**20):
        seen.append([(each.attempt, each.kind) for each in batch])
        spool.remove(batch)
    report = "report"
    assert seen == [[(1, report)], [(2, report), (2, report)], [(2, "finish")], [(2, report)]]
    spool.close()


def test_a_batch_ends_at_its_bounds_and_never_is_empty(tmp_path: Path) -> None:
    spool = open_spool(tmp_path / "a")
    spool.add([Item("report", 1, "x" * 100) for _ in range(10)])
    assert len(spool.head(4, 2**20)) == 4
    assert len(spool.head(100, 350)) == 3
    assert len(spool.head(100, 10)) == 1
    spool.close()


def test_an_empty_spool_leaves_no_file_and_a_full_one_does(tmp_path: Path) -> None:
    spool = open_spool(tmp_path / "a")
    spool.add([item(0)])
    spool.close()
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    spool = open_spool(tmp_path / "a")
    spool.remove(spool.head(10, 100))
    spool.close()
    assert not list(tmp_path.iterdir())


def test_two_processes_on_one_file_never_delete_each_others_rows(tmp_path: Path) -> None:
    one, two = open_spool(tmp_path / "a"), open_spool(tmp_path / "a")
    one.add([item(0)])
    held = two.head(10, 100)
    assert [each.body for each in held] == [BODY % 0]
    assert (one.remove(held), two.remove(held)) == (1, 0)
    two.add([item(1)])
    assert one.remove(held) == 0
    assert steps(one) == [1]
    assert two.head(10, 100) == []
    assert (one.rows, two.rows) == (0, 0)
    one.close()
    two.close()


def test_a_file_held_by_another_process_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twoclocks.client.rows.BUSY_SECONDS", 0.01)
    spool = open_spool(tmp_path / "a")
    other = sqlite3.connect(tmp_path / "a", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    assert not spool.add([item(0)])
    assert spool.head(10, 100) == []
    assert spool.durable
    other.execute("ROLLBACK")
    other.close()
    assert spool.add([item(0)])
    assert steps(spool) == [0]
    spool.close()


@pytest.mark.parametrize(
    "content",
    [b"this is no database" * 100, b"SQLite format 3\x00" + b"\xff" * 4096],
    ids=["text", "broken header"],
)
def test_a_corrupt_file_is_moved_aside_and_a_new_one_made(
    content: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a"
    for number in (1, 2):
        path.write_bytes(content)
        spool = open_spool(path)
        assert spool.durable
        assert (tmp_path / f"a.corrupt-{number}").read_bytes() == content
        assert f"is corrupt ({'file is not a database'}); kept as a.corrupt-{number}" in caplog.text
        assert spool.add([item(0)])
        assert steps(spool) == [0]
        spool.close()


def test_a_database_of_somebody_else_is_moved_aside_too(tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "a")
    other.execute("CREATE TABLE precious (x)")
    other.commit()
    other.close()
    spool = open_spool(tmp_path / "a")
    spool.add([item(0)])
    assert steps(spool) == [0]
    kept = sqlite3.connect(tmp_path / "a.corrupt-1")
    assert kept.execute("SELECT count(*) FROM precious").fetchone() == (0,)
    kept.close()
    spool.close()


def test_a_file_that_breaks_in_mid_run_gives_up_only_what_is_unreadable(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a"
    ledger = Ledger()
    spool = Spool(path, limit=2**24, ledger=ledger)
    spool.add([Item("report", 1, f'{{"step":{step},"pad":"{"x" * 500}"}}') for step in range(200)])
    content = bytearray(path.read_bytes())
    content[24:28] = content[92:96] = b"\x00\x00\xff\xff"  # the file's change counter: caches are stale
    content[8 * 4096 : 9 * 4096] = b"\xff" * 4096
    path.write_bytes(content)
    for step in range(200, 205):
        assert spool.add([item(step)])
    while batch := spool.head(1_000, 2**20):
        spool.remove(batch)
    assert spool.durable
    assert spool.rows == 0
    assert "is corrupt" in caplog.text
    assert ledger.shed > 0
    assert "reports in the spool" in caplog.text
    assert (tmp_path / "a.corrupt-1").exists()
    spool.close()


def test_a_file_deleted_in_mid_run_is_made_again_with_what_waited(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a"
    spool = open_spool(path)
    spool.remember(1, "{}")
    spool.add([item(0), item(1)])
    path.unlink()
    spool.add([item(2)])
    assert "was deleted or moved away" in caplog.text
    assert spool.durable
    spool.close()
    again = open_spool(path)
    assert again.specs() == {1: "{}"}
    assert steps(again) == [0, 1, 2]
    again.close()


@pytest.mark.parametrize("place", ["/proc/twoclocks", "{tmp}/file/below"])
def test_without_a_place_on_disk_it_waits_in_memory(
    place: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("not a folder")
    path = Path(place.format(tmp=tmp_path)) / "a"
    spool = open_spool(path)
    assert (spool.durable, spool.where) == (False, "memory")
    assert "point TWOCLOCKS_SPOOL_DIR or spool_dir to a writable folder" in caplog.text
    assert len(caplog.records) == 1
    assert spool.add([item(0), item(1)])
    assert steps(spool) == [0, 1]
    spool.close()


def test_a_disk_that_fills_up_in_mid_run_is_left_for_memory_and_nothing_is_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spool = open_spool(tmp_path / "a", limit=2**24)
    spool.add([item(0), item(1)])
    spool._rows._db.execute("PRAGMA max_page_count = 1")  # sqlite's own "database or disk is full"
    size = 400
    assert spool.add(
        [Item("report", 1, f'{{"pad":"{"x" * 9_000}","step":{step}}}') for step in range(2, size)]
    )
    assert not spool.durable
    assert "database or disk is full" in caplog.text
    assert spool.rows == size
    spool.close()


def test_above_its_bound_every_second_report_is_shed_the_newest_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = Ledger()
    (tmp_path / "file").touch()
    spool = Spool(tmp_path / "file" / "in memory, for speed", limit=1_000, ledger=ledger)
    spool.add([Item("ack", 1, "{}", generation=1)])
    total = 500
    for step in range(total):
        spool.add([item(step)])
        assert spool.bytes <= 1_000
        assert list(spool._rows.everything())[-1].body == BODY % step
    spool.add([Item("finish", 1, "{}")])
    assert [record.message for record in caplog.records if "is full" in record.message]
    ack = spool.head(10, 1_000)
    assert [each.kind for each in ack] == ["ack"]
    spool.remove(ack)
    left = steps(spool)
    assert left[-1] == total - 1
    assert left == sorted(left)
    assert len(left) + ledger.shed == total
    gaps = [later - earlier for earlier, later in pairwise(left)]
    assert left[0] == 0, "the beginning of the outage stays in view"
    assert len(left) > 30
    assert sum(gaps[: len(gaps) // 2]) > sum(gaps[len(gaps) // 2 :]), "the older the coarser"
    spool.close()


def test_what_is_being_sent_is_not_shed(tmp_path: Path) -> None:
    spool = open_spool(tmp_path / "a", limit=200)
    spool.add([item(step) for step in range(10)])
    sending = spool.head(10, 1_000)
    for step in range(10, 60):
        spool.add([item(step)])
    assert spool.remove(sending) == 10
    spool.close()


def test_threads_share_a_spool(tmp_path: Path) -> None:
    spool = open_spool(tmp_path / "a")
    writers = [
        threading.Thread(target=lambda base=base: [spool.add([item(base + i)]) for i in range(20)])
        for base in (0, 100)
    ]
    for writer in writers:
        writer.start()
    found: list[int] = []
    while len(found) < 40:
        batch = spool.head(7, 1_000)
        found += [int(each.body.split(":")[1].rstrip("}")) for each in batch]
        spool.remove(batch)
    for writer in writers:
        writer.join()
    assert sorted(found) == [*range(20), *range(100, 120)]
    spool.close()


def test_specs_go_with_their_last_item(tmp_path: Path) -> None:
    spool = open_spool(tmp_path / "a")
    spool.remember(1, "one")
    spool.add([item(0, attempt=1)])
    spool.remember(2, "two")
    assert spool.specs() == {1: "one", 2: "two"}
    spool.remove(spool.head(10, 100))
    spool.remember(3, "three")
    assert spool.specs() == {3: "three"}
    spool.close()


def test_the_default_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_folder({"TWOCLOCKS_SPOOL_DIR": "/a/b"}) == Path("/a/b")
    assert default_folder({"XDG_CACHE_HOME": "/cache"}) == Path("/cache/twoclocks/spool")
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setattr("sys.platform", "linux")
    assert default_folder({}) == Path("/home/somebody/.cache/twoclocks/spool")
    monkeypatch.setattr("sys.platform", "darwin")
    assert default_folder({}) == Path("/home/somebody/Library/Caches/twoclocks/spool")
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    assert default_folder({}).parts[-2:] == ("twoclocks", "spool")


def test_each_run_and_service_has_a_file_of_its_own() -> None:
    folder = Path("x")
    files = {file_of(folder, url, run) for url in ("http://a", "http://b") for run in ("r", "s")}
    assert len(files) == 4
    assert all(os.fspath(path).endswith(".sqlite3") and path.parent == folder for path in files)
