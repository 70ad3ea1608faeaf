"""Locks of queues: which member of a group alone may consume one, and for how long."""

from ternmq_broker.locks.rpc_locks import LockService as LockService
from ternmq_broker.locks.rpc_locks import LockServices as LockServices
from ternmq_broker.state.lock_table import LockTable as LockTable
