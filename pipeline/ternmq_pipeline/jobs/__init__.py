"""Jobs of `ternmq pipeline`: archive, replay, redrive and report, and the pieces they share."""
