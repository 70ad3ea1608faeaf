"""Basis of every process of TernMQ: lifecycle, time, threads, settings, logs."""
