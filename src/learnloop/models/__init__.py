"""Models an agent can run on: where their files are, and how they are spoken to."""
