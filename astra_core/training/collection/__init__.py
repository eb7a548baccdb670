"""How experience is collected ahead of the updates, corrected and described."""
