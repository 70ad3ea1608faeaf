"""Jobs of `ternmq pipeline`: archive, replay, redrive and report, and their shared parts."""
