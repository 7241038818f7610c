"""Logins with tokens that an authorization server signs."""
