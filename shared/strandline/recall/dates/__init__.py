"""The dates and periods that questions name: `parsing` reads them."""
