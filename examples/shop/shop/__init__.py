"""A web shop: orders come by HTTP, and a worker bills them."""
