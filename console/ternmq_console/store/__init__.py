"""Commands of `ternmq store`: files of a data directory, without a broker."""
