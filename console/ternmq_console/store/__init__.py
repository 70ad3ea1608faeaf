"""Commands of `ternmq store`: the files of a data directory, no broker asked."""
