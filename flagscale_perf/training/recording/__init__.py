"""What measures a training and writes it: the loop's interface, a session, the writer's pipeline."""
