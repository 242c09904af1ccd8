"""What slows a training down, with evidence, causes and changes."""
