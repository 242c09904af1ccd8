"""The transport of calls: client and server, over ZeroMQ, a unix socket and sealed shared memory."""
