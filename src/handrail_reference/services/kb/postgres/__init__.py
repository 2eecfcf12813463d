"""The knowledge base in PostgreSQL, in a schema of its own: full text by its indexes, vectors by pgvector where it is there."""

from handrail_reference.services.kb.postgres.database import PostgresKnowledgeBase

__all__ = ["PostgresKnowledgeBase"]
