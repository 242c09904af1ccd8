"""Renders blocks of analysis as text, pages, pictures and data. Nothing is computed here."""
