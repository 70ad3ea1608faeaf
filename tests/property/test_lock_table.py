"""Whatever members do, a queue never has two good tokens, and a token that is over stays so."""

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ternmq_broker.state.lock_table import LockTable, QueueKey
from tests.support.examples import examples

LEASE_MS = 30
CLIENTS = st.sampled_from(["a", "b", "c"])
QUEUES = st.lists(st.sampled_from([QueueKey("T", each) for each in range(3)]), max_size=3)


class Members(RuleBasedStateMachine):
    """Members of one group that lock, renew, unlock and go, with clocks that stand or jump."""

    def __init__(self) -> None:
        super().__init__()
        self.locks = LockTable(first_token=1, lease_ms=LEASE_MS)
        self.now_ms = 0
        self.given: dict[QueueKey, list[tuple[str, int]]] = {}
        self.over: set[tuple[QueueKey, int]] = set()
        """Tokens that are good again only by a renewal: their leases ended."""

        self.gone: set[tuple[QueueKey, int]] = set()
        """Tokens that no renewal brings back."""

    @rule(client=CLIENTS, queues=QUEUES)
    def take(self, client: str, queues: list[QueueKey]) -> None:
        for key, token in self.locks.lock(
            "G", client, [(each, 0) for each in queues], now_ms=self.now_ms
        ):
            known = self.given.setdefault(key, [])
            assert all(token > earlier for _, earlier in known)
            known.append((client, token))

    @rule(client=CLIENTS, queues=QUEUES, pick=st.integers(0, 5))
    def renew(self, client: str, queues: list[QueueKey], pick: int) -> None:
        asked = [(key, token) for key in queues if (token := self._known(client, key, pick))]
        renewed = set(self.locks.lock("G", client, asked, now_ms=self.now_ms))
        assert renewed <= set(asked) - self.gone
        self.over -= renewed

    @rule(client=CLIENTS, queues=QUEUES, pick=st.integers(0, 5))
    def unlock(self, client: str, queues: list[QueueKey], pick: int) -> None:
        unlocked = [(key, self._known(client, key, pick)) for key in queues]
        self.locks.unlock("G", client, unlocked)
        self.gone.update(unlocked)

    @rule()
    def use_without_lock(self) -> None:
        for key in self.given:
            if self.locks.check("G", *key, 0, now_ms=self.now_ms) is None:
                self._end(key)

    @rule(client=CLIENTS)
    def leave(self, client: str) -> None:
        self.locks.left(client)
        for key in self.given:
            self.gone.update((key, token) for owner, token in self.given[key] if owner == client)

    @rule(by_ms=st.integers(1, 2 * LEASE_MS))
    def wait(self, by_ms: int) -> None:
        self.now_ms += by_ms

    @rule()
    def expire(self) -> None:
        self.locks.expire(now_ms=self.now_ms)
        for key in self.given:
            if self.locks.holding("G", *key, now_ms=self.now_ms) is None:
                self._end(key)

    def _end(self, key: QueueKey) -> None:
        self.gone.update((key, token) for _, token in self.given.get(key, []))

    def _known(self, client: str, key: QueueKey, pick: int) -> int:
        own = [token for owner, token in self.given.get(key, []) if owner == client]
        return own[pick % len(own)] if own else 0

    @invariant()
    def at_most_the_newest_token_is_good_and_none_comes_back(self) -> None:
        for key, given in self.given.items():
            good = [
                token
                for _, token in given
                if self.locks.check("G", *key, token, now_ms=self.now_ms) is None
            ]
            assert good in ([], [given[-1][1]])
            assert not {(key, token) for token in good} & (self.over | self.gone)
            self.over |= {(key, token) for _, token in given if token not in good}
            self.gone.update((key, token) for _, token in given[:-1])


Members.TestCase.settings = settings(max_examples=examples(200), stateful_step_count=40)
TestMembers = Members.TestCase
