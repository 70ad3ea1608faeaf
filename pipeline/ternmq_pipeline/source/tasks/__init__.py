"""Tasks of a read: fetching an offset range and projecting it to the columns of the query."""
