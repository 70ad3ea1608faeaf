"""Administration of a whole cluster: topics, groups, brokers, transactions, single messages."""

from ternmq_client.admin.brokers import BrokerAdmin
from ternmq_client.admin.dead_letters import DeadLetterAdmin
from ternmq_client.admin.group_changes import GroupChanges
from ternmq_client.admin.groups import GroupAdmin
from ternmq_client.admin.messages import MessageAdmin
from ternmq_client.admin.open_transactions import TransactionAdmin
from ternmq_client.admin.replication import ReplicationAdmin
from ternmq_client.admin.topics import TopicAdmin


class AdminClient(
    TopicAdmin,
    GroupAdmin,
    GroupChanges,
    DeadLetterAdmin,
    MessageAdmin,
    BrokerAdmin,
    ReplicationAdmin,
    TransactionAdmin,
):
    """Asks and tells every broker of a cluster, between `async with` and its end.

    Every method asks the NameServer who is there, dials whom it needs and hangs up again, so that
    nothing here is ever out of date. Masters are asked, unless a method says otherwise.

    Args:
        config: The old name of `client`, with a deprecation warning.
        nameserver: `HOST:PORT`, several separated by `;` or `,`, or a sequence of such. None = as
            in `client`.
        client: How to find and talk to services.
        env: The seams. None = the real world, opened and closed with the client.

    Raises:
        ConfigError: An address is illegal, an argument has another type, or `nameserver` and
            `client` name different NameServers.
    """
