"""Who a person is at other services: connections by OAuth, tokens that are encrypted at rest, one credential for each person.

`config` reads `[connections.NAME]`, `oauth` speaks with an authorization server, `vault` encrypts, `connections` joins them over
a store. Nothing here needs the web server; `oauth` and `vault` need the extra `identity`.
"""
