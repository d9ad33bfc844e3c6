"""Where the coordinator's state is kept: in etcd, or in memory for tests and simulation."""
