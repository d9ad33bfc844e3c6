"""Authentication and authorization of gRPC calls: identities, certificates, rules."""
