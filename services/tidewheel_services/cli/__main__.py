"""`python -m tidewheel_services.cli` is the program `tidewheel`, also where no script of that name is on the PATH."""

from tidewheel_services.cli import main

main()
