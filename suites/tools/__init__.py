"""Tools around the runtime and the house: the documentation site, proofs for refactorings, kept histories."""
