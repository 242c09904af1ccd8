"""Steps replayed from their records: what a change would bring, and what each step waited for."""
