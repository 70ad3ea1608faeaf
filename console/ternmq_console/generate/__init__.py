"""Commands that write files for other programs: `ternmq generate`."""
