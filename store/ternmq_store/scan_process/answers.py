"""What the scanning process says to a wish: what `scan_queue` reads, as an Arrow stream.

Without pyarrow, or with one that cannot be loaded, every wish is refused.
"""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ternmq_model.errors import MessageDamaged, MissingPackage, StoreError, StretchGone, UsageError
from ternmq_model.response_code import ResponseCode
from ternmq_model.subscription import parse_subscription
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.scan_process.frames import Answer, Answers, Kind, Refusal, Wish

logger = logging.getLogger(__name__)

END_OF_STREAM: Final = b"\xff\xff\xff\xff\0\0\0\0"
"""What an Arrow stream ends with."""


def answers(files: FileSystem) -> Answers:
    """Return what answers wishes from directories of `files`."""
    try:
        from ternmq_store.columns.batches import arrow_schema
        from ternmq_store.scan.directory import StoreDirectory
        from ternmq_store.scan.queue_scan import scan_queue
        from ternmq_store.scan.scan_spec import QueueStretch, Wanted
    except (ImportError, MissingPackage) as error:
        remark = f"this broker serves no Scan: {error}"
        return lambda _wish: _refuse(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)

    def answer(wish: Wish) -> Iterator[Answer]:
        wanted = Wanted(
            subscription=parse_subscription(wish.topic, wish.expression, wish.expression_type),
            stored_from_ms=wish.stored_from_ms,
            stored_before_ms=wish.stored_before_ms,
            keys=frozenset(wish.keys),
            columns=wish.columns,
            batch_rows_max=wish.batch_rows_max,
            batch_bytes_max=wish.batch_bytes_max,
            skips_damaged=wish.skips_damaged,
        )
        yield Answer(Kind.SCHEMA, memoryview(arrow_schema(wish.columns).serialize()))
        end = wish.begin_offset
        directory = StoreDirectory(files, Path(wish.root))
        directory.may_map = wish.may_map
        stretch = QueueStretch(wish.topic, wish.queue_id, wish.begin_offset, wish.end_offset)
        steps = scan_queue(
            directory, stretch, wanted, broker_name=wish.broker_name, log_end=wish.log_end
        )
        for batch, next_offset, damaged in steps:
            end = next_offset
            if batch is None or not batch.num_rows:
                yield Answer(Kind.PROGRESS, b"", next_offset, damaged)
            else:
                data = memoryview(batch.serialize())
                yield Answer(Kind.BATCH, data, next_offset, damaged, batch.num_rows)
        yield Answer(Kind.END, END_OF_STREAM, end)

    return lambda wish: _told(answer(wish))


def _told(steps: Iterator[Answer]) -> Iterator[Answer]:
    """Give `steps` on, with a refusal where they end by an error that the reader is to be told."""
    try:
        yield from steps
    except StretchGone as error:
        yield from _refuse(ResponseCode.PULL_OFFSET_MOVED, str(error))
    except MessageDamaged as error:
        yield from _refuse(ResponseCode.SYSTEM_ERROR, str(error))
    except (MissingPackage, StoreError, OSError) as error:
        yield from _refuse(ResponseCode.SYSTEM_ERROR, f"the store cannot be scanned: {error}")
    except UsageError as error:
        yield from _refuse(ResponseCode.INVALID_PARAMETER, str(error))
    except MemoryError:
        raise  # another process may have more
    except Exception as error:
        logger.exception("a scan failed")
        remark = f"the scan failed: {type(error).__name__}: {error}"
        yield from _refuse(ResponseCode.SYSTEM_ERROR, remark)


def _refuse(code: ResponseCode, remark: str) -> Iterator[Answer]:
    yield Answer(Kind.REFUSAL, Refusal(code, remark).to_bytes())
    yield Answer(Kind.END)
