"""Policy-gradient losses, one file each: new and old log-probabilities to a loss a token."""
