"""Scan and MeasureQueues: stretches of queues as Arrow bytes, by processes beside the broker."""
