"""Other projects' suites, run with this package installed: `python -m tests.foreign`. See docs/explanation/proof.md."""
