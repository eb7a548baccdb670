"""Stages and adapters: files in, files out."""
