"""The commands of ``astra`` by what they are for; each module adds its own to the program."""
