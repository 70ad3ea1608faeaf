"""Client of a cluster, shared by producers and consumers: routes, connections, Sessions."""

from ternmq_client.blocking_client import BlockingClient as BlockingClient
from ternmq_client.blocking_client import LoopThread as LoopThread
from ternmq_client.config import NAMESERVER_DEFAULT as NAMESERVER_DEFAULT
from ternmq_client.config import NAMESERVER_VARIABLE as NAMESERVER_VARIABLE
from ternmq_client.config import ClientConfig as ClientConfig
from ternmq_client.config import nameserver_texts as nameserver_texts
from ternmq_client.instance import ClientInstance as ClientInstance
from ternmq_client.retry_policy import RetryPolicy as RetryPolicy
