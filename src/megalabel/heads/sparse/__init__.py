"""Sparse rows of features: storage, an inverted index, and linear classifiers trained on them."""
