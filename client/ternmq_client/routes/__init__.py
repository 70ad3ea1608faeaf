"""Routes of topics, as NameServers tell them and as a client keeps them."""
