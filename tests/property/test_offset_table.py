"""Whatever is committed, sought and lost, no commit of an older version ever moves an offset."""

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ternmq_broker.state.fastjson import parse_json, write_json
from ternmq_broker.state.offset_versions import OffsetVersions
from ternmq_broker.state.offsets import OffsetTable
from ternmq_model.data_version import DataVersion
from ternmq_model.offsets import QueueOffset
from tests.support.examples import examples

OFFSETS = st.integers(0, 20)


class Consumers(RuleBasedStateMachine):
    """Consumers of one queue that learn versions late, beside one model of what is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.table = OffsetTable(DataVersion(0))
        self.kept: int | None = None
        self.version = 0
        self.known = {"a": 0, "b": 0}

    @rule(who=st.sampled_from("ab"), offset=OFFSETS)
    def commit(self, who: str, offset: int) -> None:
        version = self.known[who]
        is_kept = self._commit(offset, version)
        is_higher = self.kept is None or offset >= self.kept
        assert is_kept == (version == self.version and is_higher)
        if is_kept:
            self.kept = offset

    @rule(who=st.sampled_from("ab"), offset=OFFSETS)
    def seek(self, who: str, offset: int) -> None:
        assert self._commit(offset, self.known[who], force=True)
        self.kept, self.version = offset, self.version + 1

    @rule(who=st.sampled_from("ab"))
    def learn(self, who: str) -> None:
        self.known[who] = self.table.version("G", "T", 0)

    @rule()
    def restart(self) -> None:
        """The files hold everything: versions always, offsets after a clean stop."""
        versions = OffsetVersions.from_dict(parse_json(write_json(self.table.versions.to_dict())))
        self.table = OffsetTable.from_dict(parse_json(write_json(self.table.to_dict())), now_ms=1)
        self.table.versions = versions

    def _commit(self, offset: int, version: int, *, force: bool = False) -> bool:
        told = QueueOffset(offset)
        return self.table.commit("G", "T", 0, told, version, force=force, now_ms=1)

    @invariant()
    def what_is_kept_is_what_was_taken(self) -> None:
        assert self.table.query("G", "T", 0) == self.kept
        assert self.table.version("G", "T", 0) == self.version


Consumers.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=30)
TestConsumers = Consumers.TestCase
