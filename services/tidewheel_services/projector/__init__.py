"""The projector process: it follows the journal and writes the read model."""
