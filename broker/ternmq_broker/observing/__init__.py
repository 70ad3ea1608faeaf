"""What operators may ask about clients."""
