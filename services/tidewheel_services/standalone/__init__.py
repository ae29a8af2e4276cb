"""Everything in one command, on one machine: what `tidewheel dev` and `tidewheel demo` run."""
