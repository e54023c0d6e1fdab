"""Programs that prove what no test of one folder can: README.md here says what each proves, and how
it is run.
"""
