"""Plans of reads: offsets, offset ranges, partitions, admission control and data loss."""
