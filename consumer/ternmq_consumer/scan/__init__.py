"""Scans and measurements of ranges of queues for data pipelines, without a consumer group."""

from ternmq_consumer.scan.blocking_scanner import BlockingBatchIterator as BlockingBatchIterator
from ternmq_consumer.scan.blocking_scanner import BlockingScanner as BlockingScanner
from ternmq_consumer.scan.blocking_scanner import shared_scanner as shared_scanner
from ternmq_consumer.scan.measurement import measure as measure
from ternmq_consumer.scan.range_batches import MeasuredRange as MeasuredRange
from ternmq_consumer.scan.range_batches import PulledBatch as PulledBatch
from ternmq_consumer.scan.range_batches import RangeToMeasure as RangeToMeasure
from ternmq_consumer.scan.range_batches import ScannedBatch as ScannedBatch
from ternmq_consumer.scan.range_batches import ScanOptions as ScanOptions
from ternmq_consumer.scan.range_pull import pull_range as pull_range
from ternmq_consumer.scan.range_reader import given_up_when_broken as given_up_when_broken
from ternmq_consumer.scan.range_scan import scan_range as scan_range
