"""The browser dashboard."""
