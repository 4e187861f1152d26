"""Verdicts and provenance as JSON (the source), Markdown, HTML and text."""
