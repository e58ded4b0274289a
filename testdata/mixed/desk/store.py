"""The tickets. There are always the same, so that nothing has to be set up."""

SUBJECTS = ["Printer on fire", "Cannot sign in", "Export is slow", "Grüße kommen nicht an", "Screen stays dark"]
STATES = ["open", "waiting", "closed"]

TICKETS = [
    {"number": number, "subject": SUBJECTS[number % 5], "state": STATES[number % 3]}
    for number in range(1, 41)
]


def find(number):
    return next((ticket for ticket in TICKETS if ticket["number"] == number), None)
