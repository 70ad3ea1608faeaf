"""Reading whole stretches of queues: what data pipelines are made of. No group, no member."""

from ternmq_consumer.scan.blocking_scanner import BlockingScanner as BlockingScanner
from ternmq_consumer.scan.blocking_scanner import StretchIterator as StretchIterator
from ternmq_consumer.scan.blocking_scanner import shared_scanner as shared_scanner
from ternmq_consumer.scan.measurement import measure as measure
from ternmq_consumer.scan.range_batches import MeasuredStretch as MeasuredStretch
from ternmq_consumer.scan.range_batches import PulledStretch as PulledStretch
from ternmq_consumer.scan.range_batches import ScannedBatch as ScannedBatch
from ternmq_consumer.scan.range_batches import ScanOptions as ScanOptions
from ternmq_consumer.scan.range_batches import StretchToMeasure as StretchToMeasure
from ternmq_consumer.scan.range_pull import pull_stretch as pull_stretch
from ternmq_consumer.scan.range_reader import given_up_when_broken as given_up_when_broken
from ternmq_consumer.scan.range_scan import scan_stretch as scan_stretch
