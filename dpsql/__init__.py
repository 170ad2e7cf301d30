"""Private top-k analytics in SQL."""
