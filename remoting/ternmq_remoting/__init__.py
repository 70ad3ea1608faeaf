"""Talk between services: the seam of RPCs, and gRPC behind it. The one place that imports grpc."""

import os

# Before gRPC is loaded, which looks once. Its handlers of forks crash about one in ten children
# that are forked beside a living client, such as the one in which PySpark starts the JVM. Without
# them a child that only begins another program is safe; none could go on using gRPC either way.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
