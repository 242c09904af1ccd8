"""The third instrument: what passes between processes through a queue (TransferQueue), who put it, who got
it, and how long that took.
"""
