"""Which attacker is champion: the gate, promotion, and examining the champion again."""
