"""Tables that slaves synchronize from their master, and offsets that a master takes from slaves."""
