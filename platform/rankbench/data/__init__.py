"""The data room: cards, raw files, preparation, splits."""
