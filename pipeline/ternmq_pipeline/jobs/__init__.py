"""What `ternmq pipeline` runs: one module a job, and the pieces that they share."""
