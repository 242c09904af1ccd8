"""What calls cost on this machine: measured, predicted, and held against what somebody reports."""
