"""The coordinator: keeps the shards apart, and never decides provisioning."""
