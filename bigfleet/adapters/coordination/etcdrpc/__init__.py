"""The few calls of etcd's gRPC interface that the coordinator makes."""
