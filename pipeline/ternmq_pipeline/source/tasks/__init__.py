"""What tasks do: fetch the ranges of a partition and shape them into the columns asked for."""
