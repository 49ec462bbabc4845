"""The shell of the broker: sockets, files, threads and the clock around the pure core."""
