"""What can go wrong with the experiment tracker and the registry."""

from astra_core.errors import AstraError


class TrackingError(AstraError):
    """The experiment tracker or the model registry cannot do what was asked."""


class StoreError(TrackingError, ConnectionError):
    """The store behind tracker and registry did not answer; a minute later it may."""


class DamagedStoreError(TrackingError):
    """The store is damaged, denies access or does not exist; waiting does not help."""
