"""RPCs between services, and gRPC behind them. The only package that imports grpc."""

import os

from ternmq_remoting.grpc_engine import choose_engine, installed_version

# gRPC reads this variable once, when it is loaded. Its fork handlers crash about one in ten
# children that are forked beside an open client, such as the one in which PySpark starts the JVM.
# Without them a child that only starts another program is safe. No child can use gRPC either way.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
choose_engine(os.environ, installed_version())
