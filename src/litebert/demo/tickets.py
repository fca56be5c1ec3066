"""Made-up tickets to the support of a shop, for tutorials and tests.

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
WRONG_LABELS = 0.04
TYPING_ERRORS = 0.03
TWO_TEAMS = 0.6
"""Share of tickets that also name a thing of another team, about which nothing is wrong."""

DETAILED = 0.5
"""Share of tickets with a sentence that only the right team hears."""

THINGS = {
    "account": (
        "my login|the password|my access|the customer account|the confirmation email|"
        "the code by text message|the address in my profile|the user account|"
        "the activation link|the two-factor prompt|my user name|the registration|"
        "the sign-in page|the security question|the newsletter setting|my profile picture"
    ),
    "billing": (
        "the invoice|the charge|the amount|the credit note|the receipt|the direct debit|"
        "the discount|the sales tax|the payment slip|the reminder|the installment plan|"
        "the voucher|the bank transfer|the credit card|the early payment discount|"
        "the payment method"
    ),
    "returns": (
        "the return|the exchange|the return label|the refund|the return slip|"
        "the pickup of the old device|the replacement|the cancellation|the complaint|"
        "the returns portal|the warranty|the swap|the 14 day limit|the withdrawal|"
        "the return form|the guarantee"
    ),
    "shipping": (
        "the parcel|the delivery|the shipment|the courier|the tracking number|the package|"
        "the delivery date|the parcel locker|the carrier|the freight company|"
        "the drop-off at the neighbor|the express delivery|the time slot|the delivery note|"
        "the tracking page|the delivery address"
    ),
    "technical": (
        "the screen|the update|the battery|the app|the charger|the wireless connection|"
        "the speaker|the remote control|the camera|the microphone|the sensor|the keyboard|"
        "the display|the power button|the firmware|the power supply"
    ),
}

DETAILS = {
    "account": (
        "I cannot get into my profile any more.|After three tries I was locked out.|"
        "When I sign in I land on the home page again.|How do I reset it?|"
        "Please unlock me.|The site says that my email is unknown.|"
        "It does not let me in on my phone either.|The mail with the link never came.|"
        "I want to change my data myself.|It keeps asking for a new code."
    ),
    "billing": (
        "I was charged twice.|I paid long ago.|Please send me a copy as a PDF.|"
        "The sum is higher than on the website.|I need this for my taxes.|"
        "My bank statement says something else.|Why should I pay a late fee?|"
        "My company needs proof.|There is a wrong name on it.|"
        "The money left my bank a week ago."
    ),
    "returns": (
        "I do not like it and want to send it back.|When do I get my money back?|"
        "I got two and need only one.|It is unused and in its original box.|"
        "Until when can I give it back?|Do I have to pay the postage myself?|"
        "I would rather have another model.|It is packed and ready to go.|"
        "The size does not fit me.|Where do I drop it off?"
    ),
    "shipping": (
        "My order is not here yet.|The status says that it was handed over, but not to me.|"
        "I have been waiting for two weeks.|The box arrived torn open.|"
        "The driver did not even ring.|I was at home all day.|"
        "Where is my order right now?|It went to the wrong street.|"
        "There was only a card in my mailbox.|Can you bring it once more?"
    ),
    "technical": (
        "The device turns off after five minutes.|It does not turn on any more.|"
        "At the start there is only a black picture.|It beeps and gets very hot.|"
        "Since yesterday everything freezes.|The setup stops with error 17.|"
        "I have already restarted it.|The red light keeps blinking.|"
        "The sound is gone.|Is there a new driver for it?"
    ),
}

WRONG = (
    "is missing {when}|is not in order {when}|does not work {when}|is wrong {when}|"
    "causes trouble {when}|is a problem {when}|is not what it should be {when}"
)
RIGHT = (
    "is there|is in order|works by now|is right now|causes no more trouble|"
    "is no problem|is what it should be"
)
"""Faults and merits of anything."""
WHEN = "|unfortunately|since yesterday|still|yet again|since the weekend|as before|today too"
JOINED = (
    "{right}, but {wrong}.|{right}. Only {wrong}.|{wrong}, though {right}.|"
    "{wrong}. On the other hand {right}.|{right}, however {wrong}.|"
    "This is what I mean: {wrong}. By the way, {right}."
)
GREETINGS = "|||Hello,|Good morning,|Dear Sir or Madam,|Hi,|Hello team,"
CONTEXTS = (
    "||||I have been a customer for years.|My order number is {number}.|"
    "This is about order {number}.|I have called twice already.|I ordered on May {day}.|"
    "Nobody could help me on the phone."
)
REQUESTS = (
    "||What should I do?|Please get back to me.|Can you check this?|I need help.|"
    "What happens next?|This must be possible faster!|Thanks for a short answer."
)
CLOSINGS = "|||Kind regards|Thanks|Cheers|Best wishes|Greetings from Leeds|Bye"


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
    body = ". ".join(_capitalize(" ".join(part.split())) for part in body.split(". "))
    body = body.replace(" ,", ",").replace(" .", ".").rstrip(" .") + "."
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
    return text.lower() if draw.random() < 0.2 else text


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
