"""Durations as people read them."""


def duration(seconds: float) -> str:
    """A measured time in words.

    >>> duration(12.34), duration(75), duration(7325)
    ('12.3 s', '1 min 15 s', '2 h 2 min')
    """
    minutes, rest = divmod(round(seconds), 60)
    if not minutes:
        return f"{seconds:.1f} s"
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def about(seconds: float) -> str:
    """An expected time in words, rounded because it is an estimate.

    >>> about(3.2), about(200), about(7300)
    ('3 s', '3 min', '2.0 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
