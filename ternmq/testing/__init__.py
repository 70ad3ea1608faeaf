"""TernMQ inside a test: a NameServer and brokers in this process, with time that the test moves.

    from ternmq.testing import Cluster

    async with Cluster() as cluster, cluster.producer("orders") as producer:
        await producer.send(Message("orders", b"1", deliver_after_ms=3_600_000))
        await cluster.advance("1h")
        cluster.expect("orders", count=1)

`docs/howto/test.md` has the whole of it. With pytest, the fixture `ternmq` is such a cluster.
"""

from ternmq_testing.cluster.blocking_cluster import BlockingBroker as BlockingBroker
from ternmq_testing.cluster.blocking_cluster import BlockingCluster as BlockingCluster
from ternmq_testing.cluster.cluster import Cluster as Cluster
from ternmq_testing.cluster.members import BrokerHandle as BrokerHandle
from ternmq_testing.explore.explore import explore as explore
from ternmq_testing.explore.explored_cluster import ExploredCluster as ExploredCluster
from ternmq_testing.unittest_case import AsyncClusterTestCase as AsyncClusterTestCase
from ternmq_testing.unittest_case import ClusterTestCase as ClusterTestCase
