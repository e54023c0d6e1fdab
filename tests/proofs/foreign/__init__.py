"""Other projects' suites, run with this package installed. See README.md in the folder above."""
