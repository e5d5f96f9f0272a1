"""The matrix inverse that closed forms share."""
