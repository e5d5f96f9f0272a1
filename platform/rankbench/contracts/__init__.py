"""What is asked of every loss, encoder, solver, reader, protocol and metric: of those of the package by the tests, of yours by
`rankbench check`.
"""
