"""Routes of topics, as NameServers return them and clients cache them."""
