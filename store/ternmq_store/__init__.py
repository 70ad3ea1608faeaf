"""The store: commit log, consume queues, flush and recovery. Synchronous; knows nothing of gRPC."""
