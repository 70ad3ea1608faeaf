"""The process that scans for a broker: reads a store's directory, writes Arrow bytes to a pipe."""
