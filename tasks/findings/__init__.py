"""The archive of findings: attacks that succeeded, kept from run to run."""
