"""Random worlds by kind: healing, harsh, lasting, several shards."""
