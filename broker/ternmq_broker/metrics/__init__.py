"""Series of a broker's metrics, collected from its parts at each scrape."""
