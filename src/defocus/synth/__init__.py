"""Data sets of sharp and blurred pairs: planned, made in bulk, resumable, checked."""
