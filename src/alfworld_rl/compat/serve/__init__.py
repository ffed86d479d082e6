"""The world as a service for trainers on other machines, in the words of OpenEnv (extra `serve`).

`alfworld-rl serve` is the command; `openenv.create_app` the same as an ASGI application.
"""
