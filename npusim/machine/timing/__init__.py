"""Time: a SimPy model of pipes, queues, flags, ports, L2 and main memory."""
