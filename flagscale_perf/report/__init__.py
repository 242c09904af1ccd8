"""Data in, text out. No arithmetic."""
