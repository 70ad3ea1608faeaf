"""TernMQ in containers of the real image, in the conventions of testcontainers.

    from ternmq.testing.containers import TernMQContainer

    with TernMQContainer() as mq:
        main(nameserver=mq.get_nameserver())
        mq.expect("orders", count=1)

Needs the extra `containers` and a Docker engine. Without the extra the import raises
`MissingPackage`, an `ImportError`. `docs/howto/test.md` has more.
"""

from importlib.util import find_spec as _find_spec

from ternmq_model.errors import MissingPackage as _MissingPackage
from ternmq_model.version import install_command as _install_command

if _find_spec("testcontainers") is None:
    _how = _install_command("containers")
    raise _MissingPackage(f"ternmq.testing.containers needs testcontainers: {_how}")

from ternmq_testing.containers.container_broker import ContainerBroker as ContainerBroker
from ternmq_testing.containers.ternmq_containers import TernMQCluster as TernMQCluster
from ternmq_testing.containers.ternmq_containers import TernMQContainer as TernMQContainer
