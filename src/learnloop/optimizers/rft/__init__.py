"""Reinforcement fine-tuning: new weights from graded rollouts."""
