"""AdCP's own storyboards against a seller: `python -m tests.proofs.commerce.adcp`."""
