"""The highest epoch of each broker name, and their file. Pure.

docs/formats/broker-epochs.md.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Final

from ternmq_model.epochs import EPOCH_STORED_MAX
from ternmq_model.errors import refusal
from ternmq_model.json_checksum import add_checksum, as_object, verify_checksum
from ternmq_model.response_code import ResponseCode

FORMAT_VERSION: Final = 1
NAMES_MAX: Final = 65_536
"""Limit on names, of which only an operator knows those that will not return."""

FORGET_COMMAND: Final = "ternmq broker forget-epoch"
"""Command that removes a name."""


class EpochTable:
    """Highest accepted epochs, by cluster and broker name.

    Immutable: a change returns another table, so that it is on disk before the reply.
    """

    def __init__(self, epochs: Mapping[tuple[str, str], int] | None = None) -> None:
        self._epochs = dict(epochs or {})

    def __len__(self) -> int:
        return len(self._epochs)

    def __iter__(self) -> Iterator[tuple[tuple[str, str], int]]:
        return iter(sorted(self._epochs.items()))

    def get(self, cluster: str, broker_name: str) -> int:
        """Return the highest epoch; 0 when none was accepted."""
        return self._epochs.get((cluster, broker_name), 0)

    def raised(self, cluster: str, broker_name: str, epoch: int) -> "EpochTable":
        """Return a table with that epoch, or this table when its epoch is not lower.

        A new name in a full table replaces the oldest name with epoch 1: no master has a lower
        epoch to refuse.

        Raises:
            RefusedError: FLOW_CONTROL: no more names fit.
        """
        key = (cluster, broker_name)
        if epoch <= self._epochs.get(key, 0):
            return self
        if key not in self._epochs and len(self) >= NAMES_MAX:
            first = next((each for each, number in self._epochs.items() if number == 1), None)
            if first is None:
                remark = f"{NAMES_MAX} broker names have had an epoch; no more fit"
                raise refusal(
                    ResponseCode.FLOW_CONTROL, f"{remark} (remove names by {FORGET_COMMAND})"
                )
            return self.repaired(*first, 0).raised(cluster, broker_name, epoch)
        return EpochTable({**self._epochs, key: epoch})

    def repaired(self, cluster: str, broker_name: str, epoch: int) -> "EpochTable":
        """Return a table with that epoch, also a lower one; 0 removes the name.

        Raises:
            RefusedError: No more names fit.
        """
        if epoch >= self.get(cluster, broker_name):
            return self.raised(cluster, broker_name, epoch)
        others = {**self._epochs}
        del others[cluster, broker_name]
        return EpochTable(others).raised(cluster, broker_name, epoch)

    def to_json(self) -> bytes:
        """Return the content of `brokerEpochs.json`."""
        clusters: dict[str, dict[str, int]] = {}
        for (cluster, name), epoch in self:
            clusters.setdefault(cluster, {})[name] = epoch
        content = {"version": FORMAT_VERSION, "epochs": clusters}
        return add_checksum(json.dumps(content, ensure_ascii=False, indent="\t"))


def epoch_table_from_json(data: bytes) -> EpochTable:
    """Return the table that a `brokerEpochs.json` holds.

    Raises:
        ValueError: The content is invalid or of a later version, or its checksum differs.
    """
    verify_checksum(data)
    content = as_object(json.loads(data), "the file")
    version = content.get("version")
    if version != FORMAT_VERSION:
        raise ValueError(f"version {version!r}: this program reads version {FORMAT_VERSION}")
    epochs: dict[tuple[str, str], int] = {}
    for cluster, names in as_object(content.get("epochs"), "epochs").items():
        for name, epoch in as_object(names, f"cluster {cluster!r}").items():
            if type(epoch) is not int or not 0 < epoch <= EPOCH_STORED_MAX:
                raise ValueError(f"epoch of {cluster!r}/{name!r} must be 1 to {EPOCH_STORED_MAX}")
            epochs[cluster, name] = epoch
    return EpochTable(epochs)
