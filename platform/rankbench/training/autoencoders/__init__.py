"""Autoencoders of users' histories, trained by gradient steps over users."""
