"""The notifier process: it follows the journal and tells people what their workflows ask to be told of.

``telling`` finds in the events what is to be told, ``wording`` puts it in words, ``store`` keeps it in Postgres until
it is delivered, ``couriers`` deliver it, each target for itself. Nothing of the engine waits for any of them.
"""
