"""Reading whole stretches of queues: what data pipelines are made of. No group, no member."""

from ternmq_consumer.scanning.blocking import BlockingScanner as BlockingScanner
from ternmq_consumer.scanning.blocking import StretchIterator as StretchIterator
from ternmq_consumer.scanning.blocking import shared_scanner as shared_scanner
from ternmq_consumer.scanning.measure import measure as measure
from ternmq_consumer.scanning.patience import given_up_when_broken as given_up_when_broken
from ternmq_consumer.scanning.pull_stretch import pull_stretch as pull_stretch
from ternmq_consumer.scanning.scan_stretch import scan_stretch as scan_stretch
from ternmq_consumer.scanning.stretches import MeasuredStretch as MeasuredStretch
from ternmq_consumer.scanning.stretches import PulledStretch as PulledStretch
from ternmq_consumer.scanning.stretches import ScannedBatch as ScannedBatch
from ternmq_consumer.scanning.stretches import ScanOptions as ScanOptions
from ternmq_consumer.scanning.stretches import StretchToMeasure as StretchToMeasure
