"""Engines that sample in the place of weights that learn here."""
