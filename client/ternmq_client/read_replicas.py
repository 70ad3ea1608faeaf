"""Read replicas: a slave serves the consumers of a broker name while its master is away. Pure.

A member counts as away from its first failed attempt on. A master stays away until it is reached;
slaves are tried again when all of them are away.
"""

from collections.abc import Iterable
from typing import Final

from ternmq_model.route import MASTER_ID

NO_EPOCH: Final = 0
"""Epoch of a broker that was never reached, or that has none."""


def member_to_ask(members: Iterable[int], away: Iterable[int]) -> int:
    """Return the id of the member that serves readers.

    Args:
        members: Ids of the members in the route.
        away: Ids of the members that are away.
    """
    reachable = set(members) - set(away)
    return min(reachable, default=MASTER_ID)


class ReadReplicas:
    """Members that are away, and the member of each broker name that serves readers.

    Owned by one `ClientInstance`.
    """

    def __init__(self) -> None:
        self._away: dict[str, set[int]] = {}
        self._asked: dict[str, int] = {}
        self._epochs: dict[str, int] = {}

    @property
    def masters_away(self) -> list[str]:
        """Broker names whose slave serves readers, sorted."""
        return sorted(name for name, member in self._asked.items() if member != MASTER_ID)

    def asked(self, broker_name: str) -> int | None:
        """Return the last chosen member; None = none yet."""
        return self._asked.get(broker_name)

    def choose(self, broker_name: str, members: Iterable[int]) -> int:
        """Return and store the member of the route that serves readers."""
        ids = set(members)
        away = self._away.get(broker_name, set())
        if ids and ids <= away:
            # No member is left: the first that answers is used, beginning with the master.
            away.clear()
        chosen = self._asked[broker_name] = member_to_ask(ids, away)
        return chosen

    def missed(self, broker_name: str, broker_id: int) -> None:
        """Record that a member could not be reached."""
        self._away.setdefault(broker_name, set()).add(broker_id)

    def reached(self, broker_name: str, broker_id: int, epoch: int) -> None:
        """Record that a member was reached, and its epoch."""
        self._away.get(broker_name, set()).discard(broker_id)
        self._epochs[broker_name] = max(epoch, self._epochs.get(broker_name, NO_EPOCH))

    def epoch(self, broker_name: str) -> int:
        """Return the newest epoch of the members; 0 = none."""
        return self._epochs.get(broker_name, NO_EPOCH)
