"""The service `calendar`: the calendar, the meetings and the invitations that `[services.calendar]` describes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from handrail.errors import ConfigError
from handrail_reference.services.calendar.booking import PRIMARY, BookingCalendar
from handrail_reference.services.calendar.caldav_calendar import CalDavCalendar
from handrail_reference.services.calendar.caldav_client import CalDavClient
from handrail_reference.services.calendar.embedded import EmbeddedCalendar
from handrail_reference.services.calendar.google_calendar import GoogleCalendar
from handrail_reference.services.calendar.google_client import (
    CredentialSource,
    GoogleClient,
    PersonalTokens,
    account_file,
)
from handrail_reference.services.invitations import MailInvitations
from handrail_reference.services.meetings import JitsiMeetings, MeetingPort, MeetMeetings, NoMeetings
from handrail_reference.services.zoom import ZoomMeetings

Backend = Literal["embedded", "caldav", "google"]


def open_calendar(
    project: Path,
    *,
    backend: Backend = "embedded",
    path: str = "calendar.db",
    names: Sequence[str] = (PRIMARY,),
    calendars: Any = None,
    time_zone: str = "UTC",
    tenants: Sequence[str] = (),
    forget_events: Literal["delete", "keep"] = "delete",
    meetings: Literal["jitsi", "zoom", "meet", "none"] = "jitsi",
    meeting_url: str = "https://meet.jit.si",
    zoom_account_id: str = "",
    zoom_client_id: str = "",
    zoom_client_secret: str = "",
    zoom_oauth_url: str = "https://zoom.us",
    zoom_api_url: str = "https://api.zoom.us",
    invitations: Literal["auto", "service", "mail", "none"] = "auto",
    organizer: str = "",
    mail_host: str = "",
    mail_port: int = 587,
    mail_security: Literal["starttls", "tls", "none"] = "starttls",
    mail_user: str = "",
    mail_password: str = "",
    mail_from: str = "",
    caldav_url: str = "",
    caldav_user: str = "",
    caldav_password: str = "",
    caldav_ca_file: str = "",
    google_credentials: str = "",
    google_connection: str = "",
    google_subject: str = "",
    google_url: str = "",
) -> BookingCalendar:
    """The calendar of a project. Nothing is connected to before the first request.

    `names` are every tenant's calendars in the embedded calendar; `primary` is always among them. `calendars` are addresses of
    calendars elsewhere, by name. `time_zone` is the zone of whole days, of times without a zone, and of the times that people
    are shown. `forget_events` says what becomes of the events of a forgotten user; `keep` removes only the name.
    """
    mail = _mail(mail_host, mail_port, mail_security, mail_user, mail_password, mail_from, invitations)
    if meetings == "meet" and backend != "google":
        raise ConfigError('"meetings" in [services.calendar] can be "meet" for a calendar at Google only.')
    links: MeetingPort
    if meetings == "zoom":
        links = ZoomMeetings(
            account_id=zoom_account_id,
            client_id=zoom_client_id,
            client_secret=zoom_client_secret,
            oauth_url=zoom_oauth_url,
            api_url=zoom_api_url,
        )
    else:
        links = {"jitsi": lambda: JitsiMeetings(meeting_url), "meet": MeetMeetings, "none": NoMeetings}[meetings]()
    if backend == "embedded":
        if invitations == "service":
            raise ConfigError(
                '"invitations" in [services.calendar] cannot be "service": the embedded calendar sends none.'
            )
        return EmbeddedCalendar(
            project / path, names=names, time_zone=time_zone, meetings=links, mail=mail, forget_events=forget_events
        )
    if backend == "google":
        if bool(google_credentials) == bool(google_connection):
            raise ConfigError(
                'A calendar at Google needs "google_credentials", a key file of one account, or "google_connection", the name of '
                "a connection by which each person uses their own; one of the two, in [services.calendar]."
            )
        source: CredentialSource = (
            PersonalTokens(google_connection)
            if google_connection
            else account_file(project / google_credentials, google_subject)
        )
        return GoogleCalendar(
            GoogleClient(source, endpoint=google_url),
            calendars=_addresses(calendars or {PRIMARY: PRIMARY}),
            time_zone=time_zone,
            meetings=links,
            mail=mail,
            invitations=invitations,
            tenants=None if google_connection else ("", *tenants),
        )
    client = CalDavClient(caldav_url, user=caldav_user, password=caldav_password, ca_file=caldav_ca_file)
    return CalDavCalendar(
        client,
        url=caldav_url,
        calendars=_addresses(calendars),
        time_zone=time_zone,
        meetings=links,
        mail=mail,
        invitations=invitations,
        organizer=organizer,
        tenants=("", *tenants),
    )


def _mail(
    host: str,
    port: int,
    security: Literal["starttls", "tls", "none"],
    user: str,
    password: str,
    sender: str,
    invitations: str,
) -> MailInvitations | None:
    if not host:
        if invitations == "mail":
            raise ConfigError(
                '"invitations" in [services.calendar] is "mail", which needs "mail_host" and "mail_from".'
            )
        return None
    if invitations == "none":
        return None
    return MailInvitations(host, port=port, sender=sender, security=security, user=user, password=password)


def _addresses(given: Any) -> Mapping[str, str]:
    if not isinstance(given, Mapping) or not given or not all(isinstance(one, str) for one in given.values()):
        raise ConfigError(
            '[services.calendar.calendars] must name the calendars and their addresses, such as `primary = "/ana/work/"`.'
        )
    return {str(name): str(address) for name, address in given.items()}
