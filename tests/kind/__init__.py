"""Images, manifests and kind clusters."""
