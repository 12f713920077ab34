"""Who does the work: processes on this machine, or a Ray cluster. Both make the same bytes."""
