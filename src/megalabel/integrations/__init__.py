"""Bridges to other libraries, one module each; nothing is imported until it is used."""
