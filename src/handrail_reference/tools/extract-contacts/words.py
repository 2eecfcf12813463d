"""Words that decide whether what stands beside a contact is a person's name. In lower case, without a period."""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


LABELS = _words(
    """
    e email e-mail mail correo courriel
    t tel telephone phone ph p m mob mobile cell cellphone fax f office direct work home whatsapp signal
    telefon tlf mobil handy telefono teléfono móvil movil tél téléphone portable
    """
)
"""What may stand between a name and its contact: "Ana Kovač, tel. +44 …"."""

PARTICLES = _words(
    """
    af al ap av ben bin bint da das de del della den der di do dos du e el ibn la las le los ten ter van von y zu
    zum zur
    """
)
"""Small words inside a name: "Ludwig van Beethoven"."""

NOT_NAMES = LABELS | _words(
    """
    after again also although an and are as at because before but by for from he her here his how i if in is it its
    just let me more most my next no not now of on once only or other our please re she since so some still that the
    their them then there these they this those to under until us use via we what when where which while who why
    with yes you your

    cheers dear greetings hello hey hi kind regards sincerely thank thanks warm yours

    ask call contact contacts dial meet message order reach reply ring see send speak talk tell text try visit write

    dr frau herr madam madame miss mme monsieur mr mrs ms mx prof professor señor señora sir sr sra

    account accounting accounts admin administration agency agent airport apartment appointments assistance
    association attn bcc billing board booking bookings branch building bureau business campus care cc center
    central centre chief city clinic club college committee community company complaints consulting corp corporation
    council country customer customers department dept desk details director division doctor embassy emergency
    enquiries exchange executive faculty finance fire first floor foundation founder front gallery general global
    gmbh group headquarters health help helpdesk helpline hospital hotel hotline hours hq hr human inc info
    information inquiries institute insurance international jobs lab laboratory last lead legal library limited line
    live llc llp local ltd main maintenance management manager marketing media medical member ministry museum name
    national news newsletter number numbers officer online open opening operations operator owner parents partner
    partners people plc policy press private product program programme project property public purchasing reception
    recruitment rental request research reservations resources restaurant room sales school secretary security
    senior service services shop site society software solutions station store student studio support switchboard
    systems tax team tech technical technology ticket tickets toll tourist trade training travel trust union
    university urgent user website welcome works

    monday tuesday wednesday thursday friday saturday sunday mon tue wed thu fri sat sun today tomorrow

    abteilung accueil anrufen ansprechpartner appelez atención büro cliente clientes contactar contactez contacto
    empresa entreprise firma kontakt kundendienst llama llamar llame oficina société ventas vertrieb zentrale
    """
)
"""Words that begin a sentence or name a role, an organisation or a day, with a capital like a name's."""

SELDOM_NAMES = _words(
    """
    bank best box court free hall head house park police post will

    ave avenue blvd boulevard calle drive lane place platz plaza road rue square strasse street suite unit weg

    america american australia berlin britain canada china east eastern england europe france germany india ireland
    italy japan kingdom london los madrid mexico new north northern paris south southern spain states united west
    western york zealand

    january february march april may june july august september october november december jan feb mar apr jun jul
    aug sep sept oct nov dec
    """
)
"""Words of sentences, streets, places and months. Some are names as well, and pass for one before angle brackets."""
