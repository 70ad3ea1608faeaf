"""Client for the administration of a cluster: topics, groups, brokers, transactions, messages."""

from ternmq_client.admin.brokers import BrokerAdmin
from ternmq_client.admin.dead_letters import DeadLetterAdmin
from ternmq_client.admin.groups import GroupAdmin
from ternmq_client.admin.messages import MessageAdmin
from ternmq_client.admin.open_transactions import TransactionAdmin
from ternmq_client.admin.replication import ReplicationAdmin
from ternmq_client.admin.topics import TopicAdmin


class AdminClient(
    TopicAdmin,
    GroupAdmin,
    DeadLetterAdmin,
    MessageAdmin,
    BrokerAdmin,
    ReplicationAdmin,
    TransactionAdmin,
):
    """Client for the administration of a cluster, open between `async with` and its end.

    Every method reads the routes from a NameServer, connects to the members that it needs and
    disconnects, so nothing is cached. Changes go to masters alone; reads are answered by a slave
    too, while its master is away.

    Args:
        config: Old name of `client`, with a deprecation warning.
        nameserver: `HOST:PORT`, several separated by `;` or `,`, or a sequence of these. None = the
            one in `client`.
        client: Settings of the connections.
        env: Clock, network and threads. None = the operating system's, opened and closed with the
            client.

    Raises:
        ConfigError: An address is illegal, an argument has another type, or `nameserver` and
            `client` name different NameServers.
    """
