"""The tasks of daily_orders.yaml: list a day's files, load each into the warehouse, check how much came."""
