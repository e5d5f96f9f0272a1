"""What every room uses: errors, configuration, files, memory, threads and registries."""
