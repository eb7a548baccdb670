"""The commands of ``astra``, grouped by purpose; each module adds its own to the program."""
