"""One call under a key: claim, run, settle. Ring 2: it drives a store by the rules and knows no Django."""
