"""What calls cost on this machine: measured, predicted, and compared with reported figures."""
