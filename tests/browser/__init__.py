"""The playground page in a real Chromium."""
