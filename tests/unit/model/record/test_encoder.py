"""Building records in bulk gives the same bytes as building them one by one."""

import numpy as np
import pytest

from ternmq_model.errors import IllegalMessage
from ternmq_model.record.encoder import RecordEncoder
from ternmq_model.record.format import decode_record
from tests.support.records import BORN_HOST, STORE_HOST

SUFFIX = b"CLUSTER\x01c\x02"


def encoder(**settings: int) -> RecordEncoder:
    return RecordEncoder(born_host=BORN_HOST, store_host=STORE_HOST, suffix=SUFFIX, **settings)


def test_encoded_record_has_the_given_fields() -> None:
    data = encoder().encode(
        b"T", 3, b"body", b"K" * 32, b"TAGS\x01t\x02", born_at_ms=9, flag=5, sys_flag=1
    )
    decoded = decode_record(data)
    assert decoded is not None
    assert (decoded.topic, decoded.body) == (b"T", b"body")
    assert decoded.properties == b"UNIQ_KEY\x01" + b"K" * 32 + b"\x02TAGS\x01t\x02" + SUFFIX
    header = decoded.header
    assert (header.queue_id, header.flag, header.sys_flag, header.born_at_ms) == (3, 5, 1, 9)


@pytest.mark.parametrize(
    "properties", [[b"", b"a\x01b\x02", b"TAGS\x01t\x02"], [b""] * 3, [b"TAGS\x01t\x02"] * 3]
)
def test_encoding_many_records_equals_encoding_each(properties: list[bytes]) -> None:
    bodies = [b"", b"x", b"y" * 5000]
    keys = np.array([b"%032d" % n for n in range(3)])
    pieces, sizes = encoder().encode_many(
        b"Topic", [0, 1, 2], bodies, keys, properties, [0, 0, 8], born_at_ms=1
    )
    records = [
        encoder().encode(
            b"Topic", n, bodies[n], keys[n], properties[n], born_at_ms=1, flag=n // 2 * 8
        )
        for n in range(3)
    ]
    assert b"".join(pieces) == b"".join(records)
    assert sizes.tolist() == [len(record) for record in records]


def test_properties_that_are_too_long_are_refused() -> None:
    small = encoder(properties_bytes_max=60)
    with pytest.raises(IllegalMessage, match="at most 60"):
        small.encode(b"T", 0, b"", b"K" * 32, b"a\x01bbbbbb\x02", born_at_ms=1)
    with pytest.raises(IllegalMessage, match="at most 60"):
        small.encode_many(
            b"T", [0], [b""], np.array([b"K" * 32]), [b"a\x01bbbbbb\x02"], [0], born_at_ms=1
        )
