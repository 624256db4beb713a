"""Training: the loop, its step, and the phases of a run."""
