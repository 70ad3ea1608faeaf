"""Scan and MeasureQueues: ranges of queues as Arrow bytes, by processes beside the broker."""
