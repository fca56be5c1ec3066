"""What every room uses: errors, JSON, registries, progress, and the machine."""
