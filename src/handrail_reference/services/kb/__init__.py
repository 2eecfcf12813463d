"""The knowledge base: records in one SQLite file, found by words and, where embeddings are installed, by meaning.

`service.KnowledgeBase` is what handlers see as `ctx.kb`; `database.KnowledgeDatabase` the file; `importing` fills it. A record
is cut into pieces, the best piece counts, and what a user may not read does not exist for them.
"""
