"""The commands of ``astra``, grouped by purpose."""
