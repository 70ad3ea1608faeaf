"""How services talk: the seam of RPCs, and gRPC behind it. The one place that imports grpc."""
