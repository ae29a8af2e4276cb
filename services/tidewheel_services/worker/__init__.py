"""The worker process: shell commands, Python callables and HTTP requests, on top of ``tidewheel.worker``.

Who starts whom: the worker starts one *supervisor* (``supervisor_main``), a small process with a single thread that
starts and ends all others, so that nothing is ever forked from a process with threads and a log client in it. Each task
has a connection to it. When that connection closes, for whatever reason, the task is killed; so a worker killed with -9
leaves nothing running. The supervisor also kills a task whose lease was not extended in time, so a worker that is
merely stopped cannot overrun a lease either.

Shell commands (``shell``) run in a session of their own. Python callables (``runners``) run in warm processes
(``runner_main``), one call at a time each. Processes that leave their group are still found: once their parent is gone
they are the supervisor's children, and their environment says whose they are (on Linux). One that also empties its
environment is ended with the supervisor.
"""
