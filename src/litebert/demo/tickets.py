"""Made-up tickets to the support of a German shop, for tutorials and tests.

    python -m litebert.demo.tickets tickets

writes tickets/train.csv and tickets/test.csv with the columns `text` and `team`, and
tickets/unlabeled.txt with a ticket in each line. Every machine writes the same bytes.

The tickets are hard on purpose. Many name the things of two teams, and only what is wrong decides.
One word in thirty has a typing error. One label in twenty-five is wrong, so no model is always
right.
"""

from __future__ import annotations

import csv
import io
import random
import sys
from collections.abc import Sequence
from pathlib import Path

from litebert.base.storage import atomic_write

TRAIN, TEST, UNLABELED = 800, 400, 16_000
"""Tickets of each file."""
WRONG_LABELS = 0.04
"""Share of labels that belong to another team."""
TYPING_ERRORS = 0.03
"""Share of words with a typing error."""
TWO_TEAMS = 0.6
"""Share of tickets that also name a thing of another team, about which nothing is wrong."""

DETAILED = 0.5
"""Share of tickets with a sentence that only the right team hears."""

THINGS = {
    "Konto": (
        "die Anmeldung|das Passwort|mein Zugang|das Kundenkonto|die Bestätigungsmail|"
        "der Code per SMS|die Adresse im Profil|das Benutzerkonto|der Link zum Freischalten|"
        "die Zwei-Faktor-Abfrage|mein Nutzername|die Registrierung|der Login|die Sicherheitsfrage|"
        "der Newsletter|mein Profilbild"
    ),
    "Rechnung": (
        "die Rechnung|die Abbuchung|der Betrag|die Gutschrift|die Quittung|die Lastschrift|"
        "der Rabatt|die Mehrwertsteuer|der Beleg|die Mahnung|die Ratenzahlung|der Gutschein|"
        "die Überweisung|die Kreditkarte|der Skonto|die Zahlungsart"
    ),
    "Rückgabe": (
        "die Rücksendung|der Umtausch|das Etikett für die Retoure|die Erstattung|der Rückschein|"
        "die Abholung der Altware|der Ersatz|der Widerruf|die Reklamation|das Retourenportal|"
        "die Gewährleistung|der Austausch|die Frist von 14 Tagen|der Rücktritt vom Kauf|"
        "das Formular für die Rückgabe|die Garantie"
    ),
    "Technik": (
        "der Bildschirm|das Update|der Akku|die App|das Ladegerät|die Verbindung zum WLAN|"
        "der Lautsprecher|die Fernbedienung|die Kamera|das Mikrofon|der Sensor|die Tastatur|"
        "das Display|der Einschaltknopf|die Firmware|das Netzteil"
    ),
    "Versand": (
        "das Paket|die Lieferung|die Sendung|der Paketbote|die Sendungsnummer|das Päckchen|"
        "der Liefertermin|die Packstation|der Kurier|die Spedition|die Ablage beim Nachbarn|"
        "die Expresslieferung|die Zustellung|das Lieferfenster|die Sendungsverfolgung|"
        "die Lieferanschrift"
    ),
}
"""Things that each team looks after."""

DETAILS = {
    "Konto": (
        "Ich komme nicht mehr in mein Profil.|Nach drei Versuchen wurde ich gesperrt.|"
        "Beim Einloggen lande ich wieder auf der Startseite.|Wie setze ich mein Passwort zurück?|"
        "Bitte schalten Sie meinen Zugang frei.|Die Seite sagt, dass meine E-Mail unbekannt ist.|"
        "Ich kann mich auch mit dem Handy nicht anmelden.|Die Mail mit dem Link kam nie an.|"
        "Ich möchte meine Daten selbst ändern.|Der Login will immer einen neuen Code."
    ),
    "Rechnung": (
        "Mir wurde zweimal Geld abgezogen.|Ich habe längst überwiesen.|"
        "Bitte schicken Sie mir den Beleg als PDF.|Die Summe ist höher als auf der Webseite.|"
        "Ich brauche das für das Finanzamt.|Auf meinem Kontoauszug steht etwas anderes.|"
        "Warum soll ich eine Mahngebühr zahlen?|Meine Firma braucht einen Nachweis.|"
        "Bezahlt habe ich mit Karte.|Es wurden 20 Euro zu viel berechnet."
    ),
    "Rückgabe": (
        "Ich möchte vom Kauf zurücktreten.|Wohin schicke ich die falsche Größe?|Das Modell gefällt "
        "mir nicht.|Wann bekomme ich mein Geld zurück?|Ich habe zwei bekommen und brauche nur "
        "eins.|Die Ware ist unbenutzt und original verpackt.|Bis wann darf ich den Artikel "
        "zurückgeben?|Muss ich das Porto selbst zahlen?|Ich will lieber ein anderes Modell.|Die "
        "Retoure liegt schon fertig hier."
    ),
    "Technik": (
        "Das Gerät geht nach fünf Minuten aus.|Es lässt sich nicht mehr einschalten.|Beim Starten "
        "kommt nur ein schwarzes Bild.|Es piept und wird sehr heiß.|Seit gestern hängt sich alles "
        "auf.|Die Einrichtung bricht mit Fehler 17 ab.|Einen Neustart habe ich schon probiert.|Die "
        "rote Lampe blinkt dauernd.|Der Ton ist weg.|Gibt es dafür einen neuen Treiber?"
    ),
    "Versand": (
        "Meine Bestellung ist noch nicht da.|Laut Status wurde sie abgegeben, aber nicht bei mir.|"
        "Ich warte seit zwei Wochen auf die Ware.|Der Karton kam aufgerissen hier an.|"
        "Der Fahrer hat nicht einmal geklingelt.|Ich war den ganzen Tag zu Hause.|"
        "Wo ist meine Bestellung gerade?|Sie wurde an die falsche Straße geliefert.|"
        "Im Briefkasten lag nur eine Karte.|Können Sie es noch einmal zustellen?"
    ),
}
"""Sentences that people of each team hear."""

WRONG = (
    "fehlt {when}|ist {when} nicht in Ordnung|klappt {when} nicht|stimmt {when} nicht|"
    "macht {when} Ärger|ist {when} ein Problem|ist {when} nicht so, wie es sein soll"
)
RIGHT = (
    "ist da|ist in Ordnung|klappt inzwischen|stimmt jetzt|macht keinen Ärger mehr|"
    "ist kein Problem|ist so, wie es sein soll"
)
"""Faults and merits of anything."""
WHEN = "|leider|seit gestern|immer noch|schon wieder|seit dem Wochenende|nach wie vor|auch heute"
JOINED = (
    "{right}, aber {wrong}.|{right}. Nur {wrong}.|{wrong}, doch {right}.|{wrong}. Dagegen: {right}."
    "|{right}, jedoch {wrong}.|Es geht mir um Folgendes: {wrong}. Übrigens, {right}."
)
GREETINGS = "|||Hallo,|Guten Tag,|Sehr geehrte Damen und Herren,|Moin,|Hallo liebes Team,"
CONTEXTS = (
    "||||Ich bin seit Jahren Kunde.|Meine Bestellnummer ist {number}.|Es geht um den Auftrag "
    "{number}.|Ich habe schon zweimal angerufen.|Bestellt habe ich am {day}. Mai.|"
    "Am Telefon konnte mir niemand helfen."
)
REQUESTS = (
    "||Was soll ich tun?|Bitte melden Sie sich.|Können Sie das prüfen?|Ich bitte um Hilfe.|"
    "Wie geht es jetzt weiter?|Das muss doch schneller gehen!|Danke für eine kurze Antwort."
)
CLOSINGS = "|||Viele Grüße|Danke|MfG|Mit freundlichen Grüßen|Gruß aus Kassel|LG"


def write_tickets(folder: str | Path, seed: int = 0) -> list[Path]:
    """Write train.csv, test.csv and unlabeled.txt into a folder, and return their paths; no ticket
    of the others is in test.csv.
    """
    folder, draw = Path(folder), random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    seen: set[str] = set()
    tickets: list[tuple[str, str]] = []
    while len(tickets) < TRAIN + TEST + UNLABELED:
        text, team = make_ticket(draw)
        if text not in seen:
            seen.add(text)
            tickets.append((text, team))
    contents = {
        "train.csv": _format_table(tickets[:TRAIN]),
        "test.csv": _format_table(tickets[TRAIN : TRAIN + TEST]),
        "unlabeled.txt": "".join(f"{text}\n" for text, _ in tickets[TRAIN + TEST :]),
    }
    for name, content in contents.items():
        with atomic_write(folder / name) as file:
            file.write(content.encode())
    return [folder / name for name in contents]


def make_ticket(draw: random.Random) -> tuple[str, str]:
    team, other = draw.sample(sorted(THINGS), 2)
    when = _choose(draw, WHEN)
    body = wrong = f"{_choose(draw, THINGS[team])} {_choose(draw, WRONG).format(when=when)}"
    if draw.random() < TWO_TEAMS:
        right = f"{_choose(draw, THINGS[other])} {_choose(draw, RIGHT)}"
        body = _choose(draw, JOINED).format(wrong=wrong, right=right)
    number, day = draw.randint(10_000, 99_999), draw.randint(1, 31)
    context = _choose(draw, CONTEXTS).format(number=number, day=day)
    body = ". ".join(_capitalize(part) for part in body.split(". ")).rstrip(".") + "."
    detail = _choose(draw, DETAILS[team]) if draw.random() < DETAILED else ""
    middle = [body, detail] if draw.random() < 0.5 else [detail, body]
    parts = [_choose(draw, GREETINGS), context, *middle, _choose(draw, REQUESTS)]
    parts.append(_choose(draw, CLOSINGS))
    if draw.random() < WRONG_LABELS:
        team = other
    return _mistype(" ".join(filter(None, parts)), draw), team


def _format_table(tickets: Sequence[tuple[str, str]]) -> str:
    table = io.StringIO(newline="")
    rows = csv.writer(table)
    rows.writerows([("text", "team"), *tickets])
    return table.getvalue()


def _choose(draw: random.Random, options: str) -> str:
    return draw.choice(options.split("|"))


def _capitalize(text: str) -> str:
    return text[:1].upper() + text[1:]


def _mistype(text: str, draw: random.Random) -> str:
    words = [
        _add_error(word, draw) if draw.random() < TYPING_ERRORS else word for word in text.split()
    ]
    text = " ".join(words)
    if draw.random() < 0.2:
        text = text.lower()
    if draw.random() < 0.15:
        for letter, letters in ("äa", "öo", "üu"):
            text = text.replace(letter, f"{letters}e")
        text = text.replace("ß", "ss")
    return text


def _add_error(word: str, draw: random.Random) -> str:
    if len(word) < 4:
        return word
    place = draw.randrange(1, len(word) - 1)
    before, letter, after = word[:place], word[place], word[place + 1 :]
    return draw.choice(
        [before + after, before + 2 * letter + after, before + after[0] + letter + after[1:]]
    )


def main(words: Sequence[str]) -> int:
    """Write the tickets into the folder that is named, and say so."""
    folder = Path(words[0] if words else "tickets")
    for path, count in zip(write_tickets(folder), (TRAIN, TEST, UNLABELED), strict=True):
        sys.stdout.write(f"wrote {path.as_posix()}: {count:,} tickets\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
