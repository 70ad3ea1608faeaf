import gc
import itertools
import time

from ternmq_broker.transactions.table import (
    ENDED_MAX,
    WORKED_ON_MAX,
    EndedTransaction,
    OpenTransaction,
    TransactionTable,
)
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.transaction import Resolution


def P(offset: int) -> PhysicalOffset:
    return PhysicalOffset(offset)


def Q(offset: int) -> QueueOffset:
    return QueueOffset(offset)


def due(table: TransactionTable, now_ms: int) -> list[int]:
    return [entry.transaction for entry in iter(lambda: table.take_due(now_ms), None)]


def table_with(count: int, *, due_at_ms: int = 6_000) -> TransactionTable:
    """Return a table with halves at log offsets 100, 200, … and queue offsets 0, 1, …."""
    table = TransactionTable()
    places = [P(100 * number) for number in range(1, count + 1)]
    numbers = [Q(number) for number in range(count)]
    table.begin(places, numbers, now_ms=0, due_at_ms=due_at_ms, topics=["T"] * count)
    return table


def entry_of(table: TransactionTable, transaction: int) -> OpenTransaction:
    entry = table.get(P(transaction))
    assert entry is not None
    return entry


def end(
    table: TransactionTable,
    transaction: int,
    *,
    at: int,
    record_at: int | None = None,
    resolution: Resolution = Resolution.COMMIT,
) -> None:
    ended = EndedTransaction(P(transaction), resolution, "g", "m", P(at))
    where = None if record_at is None else P(record_at)
    table.end(entry_of(table, transaction), ended, record_at=where)


def test_half_offset_is_the_lowest_open_and_never_passes_unflushed_halves() -> None:
    table = table_with(3)
    assert table.half_offset(P(1000)) == 0
    end(table, 100, at=500, record_at=450)
    assert table.half_offset(P(499)) == 0
    assert table.half_offset(P(500)) == 1
    end(table, 200, at=600, record_at=550)
    end(table, 300, at=700, record_at=650)
    assert table.half_offset(P(600)) == 2
    assert table.half_offset(P(700)) == 3


def test_moved_half_is_passed_once_its_copy_is_flushed() -> None:
    table = table_with(2)
    entry = entry_of(table, 100)
    table.put_back(entry, P(800), Q(2), end=P(900))
    assert table.half_offset(P(899)) == 0
    assert table.half_offset(P(900)) == 1
    end(table, 100, at=950, record_at=920)
    assert list(table.unwritten()) == [0, 2]
    assert table.half_offset(P(900)) == 1, "what was passed stays so"
    end(table, 200, at=1000, record_at=960)
    assert table.half_offset(P(950)) == 1
    assert table.half_offset(P(1000)) == 3


def test_open_half_behind_ended_ones_holds_the_offset() -> None:
    table = table_with(5)
    for number in (1, 2, 4, 5):
        end(table, 100 * number, at=600 + number, record_at=600)
    assert table.half_offset(P(1 << 40)) == 2


def test_ops_are_kept_while_they_name_a_needed_half() -> None:
    table = table_with(4)
    for number, transaction in enumerate((200, 100, 400)):
        end(table, transaction, at=600, record_at=500)
        table.op_written(table.unwritten(), Q(number), end=P(700))
    assert table.op_offset(Q(0)) == 0
    assert table.op_offset(Q(2)) == 2
    assert table.op_offset(Q(4)) == 3


def test_scan_begins_at_first_message_without_op_never_beyond_the_flushed() -> None:
    table = table_with(3)
    assert table.scan_offset(P(1000)) == 1000
    end(table, 100, at=600, record_at=550)
    end(table, 200, at=700, record_at=650)
    assert table.scan_offset(P(1000)) == 550
    assert table.scan_offset(P(400)) == 400
    table.op_written(table.unwritten(), Q(0), end=P(750))
    assert table.scan_offset(P(1000)) == 1000
    end(table, 300, at=800, resolution=Resolution.ROLLBACK)
    assert table.scan_offset(P(1000)) == 1000, "an op is its own note"


def test_scan_begins_at_a_message_until_its_op_survives_power_loss() -> None:
    table = table_with(4)
    end(table, 100, at=600, record_at=550)
    table.op_written(table.unwritten(), Q(0), end=P(650))
    assert table.scan_offset(P(640)) == 550
    end(table, 200, at=700, record_at=660)
    assert table.scan_offset(P(640)) == 550
    table.op_written(table.unwritten(), Q(1), end=P(750))
    assert table.scan_offset(P(700)) == 660
    end(table, 300, at=800, record_at=760)
    assert table.scan_offset(P(800)) == 760
    table.op_written(table.unwritten(), Q(2), end=P(850))
    assert table.scan_offset(P(850)) == 850


def test_due_transactions_come_once_in_order() -> None:
    table = table_with(3)
    assert due(table, 5_999) == []
    first = table.take_due(6_000)
    assert first is not None
    assert first.transaction == 100
    table.rest(first, until_ms=6_100)
    end(table, 200, at=500, record_at=450)
    assert due(table, 7_000) == [300, 100]
    assert due(table, 1 << 40) == []


def test_restored_transactions_lie_before_newly_begun_ones() -> None:
    table = TransactionTable()
    table.begin([P(900)], [Q(9)], now_ms=0, due_at_ms=6_000, topics=["T"])
    found = [
        OpenTransaction(P(offset), P(offset), Q(number), 0)
        for number, offset in ((4, 400), (2, 200))
    ]
    table.restore(found)
    assert len(table) == 3
    assert table.half_offset(P(1 << 40)) == 2
    assert due(table, 0) == [200, 400]


def test_number_of_remembered_ends_is_bounded() -> None:
    table = TransactionTable()
    for number in range(ENDED_MAX + 10):
        table.remember(EndedTransaction(P(number), Resolution.COMMIT, "g", "m", P(0)))
    assert table.ended(P(9)) is None
    assert table.ended(P(10)) is not None


def test_staged_transactions_come_when_expired_and_not_among_due_ones() -> None:
    table = table_with(2)
    table.begin(
        [P(900), P(1000), P(1100)],
        [Q(2), Q(3), Q(4)],
        now_ms=0,
        due_at_ms=60_000,
        topics=["T"] * 3,
        is_staged=True,
    )
    assert (len(table), table.staged) == (5, 3)
    end(table, 1000, at=2000, record_at=1900)
    assert due(table, 1 << 40) == [100, 200]
    assert table.take_expired(59_999, offsets_max=9) == ([], False)
    assert table.take_expired(60_000, offsets_max=2) == ([entry_of(table, 900)], True)
    expired, more = table.take_expired(60_000, offsets_max=2)
    assert ([entry.transaction for entry in expired], more) == ([1100], False)
    assert table.half_offset(P(1 << 40)) == 0
    for transaction in (100, 200, 900, 1100):
        end(table, transaction, at=3000)
    assert (len(table), table.staged, table.half_offset(P(1 << 40))) == (0, 0, 5)


def test_restored_staged_transactions_expire_at_their_time() -> None:
    table = TransactionTable()
    found = [
        OpenTransaction(
            P(100 * number), P(100 * number), Q(number), 0, 5_000 * number, is_staged=number > 1
        )
        for number in range(1, 4)
    ]
    table.restore(found)
    assert table.staged == 2
    assert due(table, 1 << 40) == [100]
    assert [entry.transaction for entry in table.take_expired(10_000, offsets_max=9)[0]] == [200]
    assert [entry.transaction for entry in table.take_expired(15_000, offsets_max=9)[0]] == [300]


def seconds_to_end(count: int) -> float:
    """Return the CPU time that it takes to end this many open transactions."""
    table = TransactionTable()
    places = [P(number) for number in range(count)]
    numbers = [Q(number) for number in range(count)]
    topics = itertools.repeat("T", count)
    table.begin(places, numbers, now_ms=0, due_at_ms=60_000, topics=topics, is_staged=True)
    began_s = time.process_time()
    for number in range(count):
        end(table, number, at=number + 1, record_at=number)
    assert table.half_offset(P(count)) == count
    return time.process_time() - began_s


def test_ending_very_many_transactions_takes_linear_time() -> None:
    # 20 times as many take 20 times as long; were each dearer the more there are, 400 times.
    assert seconds_to_end(100_000) < 100 * min(seconds_to_end(5_000) for _ in range(3))


def test_staged_transactions_create_no_objects_for_garbage_collection() -> None:
    table = TransactionTable()
    gc.collect()
    before = len(gc.get_objects())
    numbers = range(10_000)
    for restored in (False, True):
        if restored:
            older = [
                OpenTransaction(P(number), P(number), Q(number), 0, 5, is_staged=True)
                for number in numbers
            ]
            table.restore(older)
            del older
        else:
            places = [P(20_000 + number) for number in numbers]
            table.begin(
                places,
                [Q(20_000 + number) for number in numbers],
                now_ms=0,
                due_at_ms=5,
                topics=itertools.repeat("T", len(numbers)),
                is_staged=True,
            )
    assert (len(table), table.lowest_physical_offset()) == (20_000, 0)
    gc.collect()
    assert len(gc.get_objects()) - before < 1_000


def test_staged_transaction_is_processed_as_any_other() -> None:
    table = table_with(1)
    table.begin(
        [P(200), P(300)], [Q(1), Q(2)], now_ms=7, due_at_ms=60_000, topics="TT", is_staged=True
    )
    assert [table.physical_offset_of(P(place)) for place in (100, 200, 300, 400)] == [
        100,
        200,
        300,
        None,
    ]
    entry = entry_of(table, 200)
    assert entry_of(table, 200) is entry
    assert table.is_open(entry)
    assert (entry.queue_offset, entry.began_at_ms, entry.due_at_ms) == (1, 7, 60_000)
    assert entry.is_staged
    end(table, 100, at=900)
    assert (table.half_offset(P(900)), table.lowest_physical_offset()) == (1, 200)
    end(table, 200, at=900)
    assert (table.half_offset(P(900)), table.lowest_physical_offset()) == (2, 300)
    assert not table.is_open(entry)


def test_staged_half_copied_by_another_broker_keeps_its_copy() -> None:
    table = TransactionTable()
    copied = OpenTransaction(P(100), P(500), Q(4), 0, 5_000, earlier=(Q(0),), is_staged=True)
    table.restore([copied, OpenTransaction(P(200), P(200), Q(1), 0, 5_000, is_staged=True)])
    assert (
        table.physical_offset_of(P(100)),
        table.physical_offset_of(P(200)),
        table.lowest_physical_offset(),
    ) == (500, 200, 200)
    expired, _ = table.take_expired(5_000, offsets_max=9)
    assert [entry.earlier for entry in expired] == [(), (Q(0),)]


def test_first_open_place_is_found_behind_ended_ones_in_bounded_looks() -> None:
    table = table_with(100)
    for number in range(2, 100):
        end(table, 100 * number, at=20_000)
    assert table.next_open(Q(0), offsets_max=10) == 0
    assert table.next_open(Q(1), offsets_max=10) == 11, "so many are looked at"
    assert table.next_open(Q(11), offsets_max=1000) == 99
    assert table.next_open(Q(100), offsets_max=10) == 100
    end(table, 100, at=20_000)
    assert table.next_open(Q(0), offsets_max=10) == 99, "nothing before the oldest is looked at"
    end(table, 10_000, at=20_000)
    assert table.next_open(Q(0), offsets_max=10) == 100


def test_staged_ones_are_seen_with_their_deadline_and_others_without() -> None:
    table = table_with(1)
    table.begin(
        [P(500), P(600)], [Q(1), Q(2)], now_ms=50, due_at_ms=900, topics="TT", is_staged=True
    )
    assert table.times_at(Q(0)) == (0, None)
    assert table.times_at(Q(1)) == (50, 900)
    end(table, 500, at=700)
    assert table.times_at(Q(1)) is None
    entry_of(table, 600)
    assert table.times_at(Q(2)) == (50, 900), "somebody works on it"


def test_oldest_notes_of_work_on_batches_are_dropped() -> None:
    table = TransactionTable()
    for number in range(WORKED_ON_MAX):
        table.work_on(f"q/{number}", now_ms=number)
    table.work_on("q/0", now_ms=9999)
    table.work_on("q/new", now_ms=10_000)
    table.work_on("", now_ms=10_000)
    told = [table.worked_on_at(name) for name in ("q/0", "q/1", "q/2", "q/new", "")]
    assert told == [9999, 1, 2, 10_000, 1], "the dropped one was worked on at 1"


def test_open_transactions_are_counted_by_topic() -> None:
    table = TransactionTable()
    table.begin([P(200), P(300)], [Q(2), Q(3)], now_ms=0, due_at_ms=9, topics=["A", "B"])
    table.begin(
        [P(400), P(500)], [Q(4), Q(5)], now_ms=0, due_at_ms=9, is_staged=True, topics=["A", "A"]
    )
    table.restore(
        [
            OpenTransaction(P(0), P(0), Q(0), 0, topic="B"),
            OpenTransaction(P(100), P(100), Q(1), 0, 5, is_staged=True, topic="C"),
        ]
    )
    assert table.open_topics == {"A": 3, "B": 2, "C": 1}
    for transaction in (100, 200, 500):
        end(table, transaction, at=900)
    assert table.open_topics == {"A": 1, "B": 2}
    assert "C" not in table.open_topics
