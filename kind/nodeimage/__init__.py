"""A kind node image from pinned Go modules and Debian packages, for where no registry answers."""
