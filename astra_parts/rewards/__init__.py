"""Rewards and terms beside the default one."""
