"""Decoding in steps of one fixed shape, which a GPU can replay without being told each kernel."""
