"""Verdicts and provenance as JSON (the source), Markdown and text."""
