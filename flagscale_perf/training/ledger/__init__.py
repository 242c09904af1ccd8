"""One accounting of a step of all ranks: what each did, whom they waited for, and what that cost."""
