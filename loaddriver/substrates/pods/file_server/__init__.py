"""A server of files that grow, beside whoever writes them."""
