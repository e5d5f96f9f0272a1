"""Split protocols: one file each, registered by existing."""
