"""What a profile says."""
