"""What every process of TernMQ runs on: lifecycle, time, threads, settings, logs."""
