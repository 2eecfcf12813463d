"""The HTTP API: routes, the guard before them, bodies, streams and problems. It knows the host of conversations."""
