"""Commands of `ternmq pipeline`."""
