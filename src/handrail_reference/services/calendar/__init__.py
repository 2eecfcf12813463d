"""The calendar behind `ctx.calendar`: a port, and an embedded backend in one SQLite file that reads and writes iCalendar.

One event on its way in: `lines` cuts a file into components, `components` checks one, `rules` and `series` say when it
happens, `tables` and `database` keep it. On its way out: `embedded` asks the index, `gaps` merges what is busy.
"""
