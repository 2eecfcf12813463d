"""The words that the offline model goes by: general English, nothing about any particular tool."""

from __future__ import annotations


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


PREPOSITIONS = words(
    """in at from to for with about of on by near into under as using via through between against regarding called named
    titled"""
)

# What the last words of an argument's name say about it.
ID = words(
    "id ids number no num code ref reference sku key uid uuid isbn iban ticker symbol serial slug ticket tracking"
)
QUERY = words("query queries q question search keyword keywords term terms topic phrase")
PLACE = words(
    "city location place country address town region destination origin area state venue airport station loc where"
)
PERSON = words(
    "name person customer user contact recipient author employee guest attendee artist player client company team"
)
TITLE = words("title subject headline heading label")
BODY = words(
    """text message body content note comment prompt idea caption reason details instructions sentence input
    statement"""
)
BEGINNING = words("start from begin beginning since after earliest checkin departure")
ENDING = words("end to until till before finish latest checkout return")

LOOKING = words(
    """tell show find search look list give get explain describe summarise summarize check read fetch compare display
    recommend suggest provide retrieve locate identify determine calculate compute translate convert validate verify
    extract count format estimate analyze analyse evaluate solve rank sort detect"""
)
DOING = words(
    """add approve archive arrange assign block book build buy call cancel change clean close compose cook create
    delete disable draft draw edit email enable fix forward generate hire illustrate invite mail make meet message
    move open order organise organize paint pause pay phone place plan play post print publish purchase put refund
    register remind remove rename repair reply report request reschedule reserve reset ring save schedule send set
    share sketch start stop submit subscribe switch text transfer turn unsubscribe update upload wash withdraw
    write"""
)
CHANGING = words(
    """add approve archive arrange assign begin book build buy cancel close compose create delete draft draw edit email
    forward generate hire invite mail make meet message move order organise organize paint pay phone post produce publish
    purchase put refund register remind remove rename reply reschedule reserve ring schedule send set share start stop
    submit subscribe switch text transfer turn unsubscribe update upload withdraw write"""
)
"""Verbs to which a look is no answer."""
VERBS = (
    LOOKING
    | DOING
    | words(
        """ask evaluate fill learn measure message need predict please review run take talk track use want what when where
        which who why how is are can could do does did will would"""
    )
)
WRITING = DOING - words(
    "build call clean cook email fix mail meet message phone play print report request ring text"
) | words("end ignore ban transfer")
"""Verbs in the name of a tool that changes something."""
GENERIC = words(
    """get set list create add new find search lookup look check make do run tool delete remove update send start end by
    to of event"""
)
POINTING = words("it its they them those these he she his her")
NO_NAME = words("i ok okay yes no thanks hello hi hey please mr mrs ms dr")
