"""Queries of an index by key, without the records that decide."""

from ternmq_model.index_keys import key_hash
from ternmq_model.offsets import PhysicalOffset
from ternmq_store.index.index_files import IndexFiles


def query(
    index: IndexFiles, topic: str, key: str, begin_ms: int, end_ms: int, maximum: int
) -> list[PhysicalOffset]:
    """Return where the newest `maximum` records may lie that have the key; ascending."""
    code = key_hash(topic, key)
    offsets = index.lookup(index.infos()[::-1], (code,), begin_ms, end_ms).offsets(code)
    found = dict.fromkeys(offsets)
    return sorted(list(found)[:maximum])
