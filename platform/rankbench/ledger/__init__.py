"""What was measured: lines of JSON in files that are small enough to be committed, one store for papers and leaderboards."""
