"""Optimisers: each reads graded traces and proposes a better agent."""
