"""The transport of calls: client and server, over ZeroMQ and sealed shared memory."""
