"""The inverse that closed forms share."""
