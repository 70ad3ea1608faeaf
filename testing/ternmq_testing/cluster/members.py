"""Members of a cluster: brokers that a test starts, stops, crashes and disturbs."""

import asyncio
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from random import Random
from typing import Final

from ternmq_broker.broker import Broker
from ternmq_broker.config import BrokerConfig
from ternmq_broker.environment import BrokerEnvironment
from ternmq_model.arguments import check_whole
from ternmq_model.errors import UsageError
from ternmq_remoting.environment import Environment
from ternmq_runtime.service import OwnedTasks
from ternmq_store.config import StoreConfig
from ternmq_testing.cluster.faults import Faults, FaultyNetwork
from ternmq_testing.cluster.wires import Wires
from ternmq_testing.memory.memory_files import PowerLossFileSystem

_NOTHING_KEPT: Final = 0.0


class BrokerHandle:
    """One broker of a cluster. Made by `Cluster`; used on the cluster's loop.

    Attributes:
        name: Name of the broker, which is its host's name too.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store_config: StoreConfig,
        env: Environment,
        wires: Wires,
        tasks: OwnedTasks,
        note: Callable[[str], None],
        on_message: Callable[[], None],
        *,
        is_in_memory: bool,
    ) -> None:
        self.name = config.name
        self._config, self._store_config, self._env = config, store_config, env
        self._wires, self._tasks, self._note = wires, tasks, note
        self._disk = PowerLossFileSystem() if is_in_memory else None
        self._life: _Life | None = None
        self._on_message = on_message
        self.faults = self._new_faults()

    @property
    def is_running(self) -> bool:
        """The broker serves."""
        return self._life is not None

    @property
    def environment(self) -> BrokerEnvironment:
        """Store and tables of the running broker, to look into.

        Raises:
            UsageError: The broker does not run.
        """
        return self._running().broker.term.environment

    async def start(self) -> None:
        """Start the broker, and return when it serves."""
        if self._life is not None:
            raise UsageError(f"broker {self.name} runs")
        self.faults = self._new_faults()
        network = FaultyNetwork(self._wires.of_service(self.name), self.faults)
        env = replace(self._env, network=network)
        broker = Broker(self._config, self._store_config, env, files=self._disk)
        life = _Life(broker)
        life.task = self._tasks.spawn(life.run(), self.name)
        self._life = life
        await life.serves.wait()
        if life.failure is not None:
            self._life = None
            raise life.failure
        if self._life is not life:
            return  # it has crashed meanwhile
        # A later life has the same address.
        self._config = replace(self._config, port=broker.address.port)
        self._note(f"{self.name} serves")

    async def stop(self, *, for_good: bool = False) -> None:
        """Let the broker leave in order. Its disk keeps everything.

        `for_good` gives back its disk too, also that of a broker which does not run.
        """
        if self._life is not None or not for_good:
            life = self._running()
            self._life = None
            life.leave.set()
            life.broker.stop_waiting()
            await life.over.wait()
            self._note(f"{self.name} stopped")
        if for_good and self._disk is not None:
            self._disk.forget()

    async def crash(self, *, power: bool = True, chance: Random | None = None) -> None:
        """End the broker at once, as a power cut does: its disk keeps only what was synced.

        A data directory keeps all that was written, as after `kill -9`.

        Args:
            power: The power is cut; False = the process alone ends, and the disk keeps all that was
                written.
            chance: Draws which of the sectors that were not synced the disk keeps; None = none.

        Test with it that code survives the loss of a broker: sends go to other brokers or fail with
        an error, and nothing is lost that was acknowledged with synchronous flush.
        """
        life = self._running()
        self._life = None
        life.is_killed = True
        if self._disk is not None:
            self._disk = _left_on(self._disk, power, chance)
        self.faults.kill()
        self._wires.kill(self.name)
        assert life.task is not None, "it was started"
        life.task.cancel()
        if self._wires.has_ports or self._disk is None:
            await life.over.wait()  # the port and the directory are free then
        self._note(f"{self.name} {'lost its power' if power else 'was killed'}")

    async def restart(self) -> None:
        """Start the broker again after `stop` or `crash`; a running one stops before."""
        if self._life is not None:
            await self.stop()
        await self.start()

    def pause(self) -> None:
        """Answer nothing until `resume`, as a machine that swaps or a stopped process."""
        self._running()
        self.faults.pause()
        self._note(f"{self.name} paused")

    def resume(self) -> None:
        """Go on after `pause`."""
        self.faults.pause(is_paused=False)
        self._note(f"{self.name} resumed")

    def refuse(self, *, next: int = 1) -> None:
        """Refuse the next requests to send with `BrokerBusy`; nothing of them is stored.

        One request of a producer may carry many messages.
        """
        check_whole("next", next, 1)
        self._running()
        self.faults.refuse(next)

    def disk_full(self, is_full: bool = True) -> None:
        """Let the disk have no space, or space again: the running broker notices it at once.

        Sends to it are refused with `RefusedError` while it is full.
        """
        if self._disk is None:
            raise UsageError("the disk of a data directory cannot be filled: leave out `data`")
        self._disk.space_bytes = 0 if is_full else None
        self._disk.used = 1.0 if is_full else 0.0
        if self._life is not None:
            cleaner = self.environment.store.cleaner
            measured = cleaner.disk_use()
            measured.run()
            cleaner.note_disk_use(measured)
        self._note(f"{self.name}: the disk is {'full' if is_full else 'not full any more'}")

    def heal(self) -> None:
        """End the faults of the running broker: pauses, refusals, lost answers, a full disk."""
        if self._life is not None:
            self.faults.heal()
        if self._disk is not None and self._disk.space_bytes is not None:
            self.disk_full(is_full=False)

    def _new_faults(self) -> Faults:
        return Faults(lambda text: self._note(f"{self.name}: {text}"), self._on_message)

    def _running(self) -> "_Life":
        if self._life is None:
            raise UsageError(f"broker {self.name} does not run")
        return self._life


def _left_on(disk: PowerLossFileSystem, power: bool, chance: Random | None) -> PowerLossFileSystem:
    """Return what the next start finds. The dead broker may still write to `disk`."""
    if not power:
        left = deepcopy(disk).restart()
        left.locks.clear()
    elif chance is None:
        left = disk.lose_power(Random(0), lucky=_NOTHING_KEPT)
    else:
        left = disk.lose_power(chance)
    return left


class _Life:
    """A broker from its start to its end."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.serves, self.leave, self.over = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self.is_killed = False
        self.failure: Exception | None = None

    async def run(self) -> None:
        """Serve until it is to leave. Errors of the start are kept, others raised."""
        try:
            async with self.broker:
                self.serves.set()
                await self.leave.wait()
        except Exception as error:
            if self.is_killed:
                return
            if self.serves.is_set():
                raise
            self.failure = error
        finally:
            self.serves.set()
            self.over.set()
