"""What tasks do: fetch the stretches of a partition and shape them into the columns asked for."""
