"""Scan requests and their checks. Pure."""

from typing import Final

from ternmq_broker.pull.rules import PullRules
from ternmq_model.columns.column_names import check_columns
from ternmq_model.errors import UsageError, refusal
from ternmq_model.response_code import ResponseCode
from ternmq_model.subscription import ALL_TAGS, TAG
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting.request_parser import check_range
from ternmq_store.scan.scan_spec import BATCH_BYTES_MAX, BATCH_ROWS_MAX
from ternmq_store.scan_process.frames import ScanRequest

KEYS_MAX: Final = 64
KEYS_BYTES_MAX: Final = 16 << 10


def checked_request(
    request: messages.ScanRequest, rules: PullRules, *, root: str, broker_name: str
) -> ScanRequest:
    """Return the request to a process that scans; each turn sets its range, log end and mapping.

    Args:
        request: Request of the reader.
        rules: Checks of the queue.
        root: Directory of the store.
        broker_name: Name of the broker.

    Raises:
        IllegalName: The topic's name is illegal.
        RefusedError: The topic, queue or column does not exist or may not be read, or a value is
            out of range; the text names it.
    """
    rules.check_queue(request.topic, request.queue_id)
    if request.HasField("created_log_offset"):
        rules.check_created(request.topic, request.created_log_offset)
    check_range("begin_offset", request.begin_offset, 0)
    check_range("end_offset", request.end_offset, request.begin_offset)
    check_range("stored_from_ms", request.stored_from_ms, 0)
    check_range("stored_before_ms", request.stored_before_ms, 0)
    rows = check_range("batch_rows_max", request.batch_rows_max, 0, BATCH_ROWS_MAX)
    length = check_range("batch_bytes_max", request.batch_bytes_max, 0, BATCH_BYTES_MAX)
    check_range("number of keys", len(request.keys), 0, KEYS_MAX)
    check_range("bytes of keys", sum(len(key.encode()) for key in request.keys), 0, KEYS_BYTES_MAX)
    if not all(request.keys):
        raise refusal(ResponseCode.INVALID_PARAMETER, "keys: one is empty")
    try:
        columns = tuple(check_columns(tuple(request.columns)))
    except UsageError as error:
        raise refusal(ResponseCode.INVALID_PARAMETER, str(error)) from None
    kind, text = TAG, ALL_TAGS
    if request.HasField("subscription"):
        chosen = rules.filters.subscription_of(request.topic, request.subscription)
        kind, text = chosen.expression_type or TAG, chosen.expression
    return ScanRequest(
        root=root,
        broker_name=broker_name,
        topic=request.topic,
        queue_id=request.queue_id,
        begin_offset=request.begin_offset,
        end_offset=request.end_offset,
        log_end=0,
        expression_type=kind,
        expression=text,
        stored_from_ms=request.stored_from_ms,
        stored_before_ms=request.stored_before_ms,
        keys=tuple(request.keys),
        columns=columns,
        batch_rows_max=rows or BATCH_ROWS_MAX,
        batch_bytes_max=length or BATCH_BYTES_MAX,
        skips_damaged=request.skips_damaged,
        may_map=False,
    )
