"""Answers of the scanning process to requests: the result of `scan_queue`, as an Arrow stream.

Without pyarrow, or with one that cannot be loaded, every request is refused.
"""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ternmq_model.errors import MessageDamaged, MissingPackage, RangeGone, StoreError, UsageError
from ternmq_model.response_code import ResponseCode
from ternmq_model.subscription import parse_subscription
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.scan_process.frames import (
    FrameKind,
    ScanAnswer,
    ScanAnswers,
    ScanRefusal,
    ScanRequest,
)

logger = logging.getLogger(__name__)

END_OF_STREAM: Final = b"\xff\xff\xff\xff\0\0\0\0"
"""End of an Arrow stream."""


def answers(files: FileSystem) -> ScanAnswers:
    """Return the function that answers requests from directories of `files`."""
    try:
        from ternmq_model.columns.batches import arrow_schema
        from ternmq_store.scan.directory import StoreDirectory
        from ternmq_store.scan.queue_scan import scan_queue
        from ternmq_store.scan.scan_spec import ScanRange, ScanSpec
    except (ImportError, MissingPackage) as error:
        remark = f"this broker serves no Scan: {error}"
        return lambda _scan_request: _refuse(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)

    def answer(request: ScanRequest) -> Iterator[ScanAnswer]:
        spec = ScanSpec(
            subscription=parse_subscription(
                request.topic, request.expression, request.expression_type
            ),
            stored_from_ms=request.stored_from_ms,
            stored_before_ms=request.stored_before_ms,
            keys=frozenset(request.keys),
            columns=request.columns,
            batch_rows_max=request.batch_rows_max,
            batch_bytes_max=request.batch_bytes_max,
            skips_damaged=request.skips_damaged,
        )
        yield ScanAnswer(FrameKind.SCHEMA, memoryview(arrow_schema(request.columns).serialize()))
        end = request.begin_offset
        directory = StoreDirectory(files, Path(request.root), request.broker_name)
        directory.may_map = request.may_map
        scan_range = ScanRange(
            request.topic, request.queue_id, request.begin_offset, request.end_offset
        )
        steps = scan_queue(directory, scan_range, spec, log_end=request.log_end)
        for batch, next_offset, damaged in steps:
            end = next_offset
            if batch is None or not batch.num_rows:
                yield ScanAnswer(FrameKind.PROGRESS, b"", next_offset, damaged)
            else:
                data = memoryview(batch.serialize())
                yield ScanAnswer(FrameKind.BATCH, data, next_offset, damaged, batch.num_rows)
        yield ScanAnswer(FrameKind.END, END_OF_STREAM, end)

    return lambda request: _told(answer(request))


def _told(steps: Iterator[ScanAnswer]) -> Iterator[ScanAnswer]:
    """Yield `steps`, and a refusal after an error."""
    try:
        yield from steps
    except RangeGone as error:
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


def _refuse(code: ResponseCode, remark: str) -> Iterator[ScanAnswer]:
    yield ScanAnswer(FrameKind.REFUSAL, ScanRefusal(code, remark).to_bytes())
    yield ScanAnswer(FrameKind.END)
