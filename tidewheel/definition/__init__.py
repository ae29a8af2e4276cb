"""Workflow files: YAML to ``core.workflow`` with a position for every mistake, expressions, and the canonical form.

``load`` is the way in. ``syntax`` makes nodes with positions out of text, ``language`` declares which keys there are
(``shapes`` reads by that declaration, ``schema`` publishes it), ``assemble`` builds the workflow and ``lint`` checks
what it says.
"""
