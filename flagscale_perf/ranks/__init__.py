"""How every rank's measurements reach rank 0's writer process, outside the training's process groups. See docs/flow.md."""
