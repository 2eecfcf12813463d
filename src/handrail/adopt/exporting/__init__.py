"""The governed tools of a session, given to other frameworks as their own objects."""
