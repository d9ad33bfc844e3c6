"""What users copy into their pipelines."""
