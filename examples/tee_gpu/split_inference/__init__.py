"""A LLaMA or Qwen whose protected part calls a GPU side for its matrix products."""
