raise RuntimeError("This URLconf cannot be imported.")
