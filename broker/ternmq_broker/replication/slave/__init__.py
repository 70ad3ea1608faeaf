"""What a slave does: finds its master, follows its log, and says how far it is."""
