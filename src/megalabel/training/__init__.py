"""Training: the only loop, its step, and what a run is made of."""
