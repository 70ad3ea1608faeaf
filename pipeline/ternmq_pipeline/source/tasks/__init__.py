"""Tasks of a read: they fetch a partition's range and project it to the columns of the query."""
