"""Scan and MeasureQueues: stretches of queues as Arrow bytes, by processes beside the broker."""

from ternmq_broker.scanning.service import ScanService as ScanService
from ternmq_broker.scanning.service import scan_service as scan_service
