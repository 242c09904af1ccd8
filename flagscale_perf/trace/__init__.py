"""The third instrument: what goes through a queue between processes (TransferQueue), who made it, who took
it, and how long that took.
"""
