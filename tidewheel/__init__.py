"""Tidewheel: an event-sourced workflow engine on Kafka.

A *command* asks, an *event* is a fact on the log, *state* is what the events add up to.
``decide(state, command, now)`` answers with events; ``fold(state, event)`` returns the next state. Both are pure;
everything else in this package is a shell around them. ``docs/tour.md`` follows one task through the code.
"""

__version__ = "0.1.0"
