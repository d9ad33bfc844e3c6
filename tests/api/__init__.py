"""Wire, certificates, the Kubernetes client and its watches."""
