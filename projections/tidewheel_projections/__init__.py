"""The read model: the journal's events folded into rows of Postgres, and the queries that read them."""
