"""Networks and their data. Everything here needs PyTorch: the extra [train]."""
