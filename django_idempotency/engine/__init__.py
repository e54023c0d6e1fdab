"""One call under a key: claim, run, settle. Ring 2: it applies the rules to a store and does not depend on Django."""
