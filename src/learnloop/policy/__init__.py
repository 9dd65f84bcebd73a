"""The policy process: the only part of learnloop that imports torch."""
