# ruff: noqa: E501 (lines of words and of forms)
"""Sentences of our own: captions, headlines, questions of a forum, opinions; and clauses of reviews, joined anew.

A student needs texts of the kinds that people compare, and not their meaning from people: the teacher has it. Few texts
of these kinds have a license for every use, so a grammar writes them. Each generator yields texts from a random source.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator


def words(text: str) -> list[str]:
    return [word.strip() for word in text.replace("\n", " ").split(",") if word.strip()]


PEOPLE = words("""man, woman, boy, girl, young man, young woman, old man, elderly woman, little girl, little boy, toddler, baby,
child, teenager, chef, cook, soldier, police officer, farmer, musician, dancer, cyclist, football player, surfer, skateboarder,
worker, fisherman, teacher, student, bride, monk, nurse, tourist, climber, gymnast, painter, runner, singer, drummer, waiter,
firefighter, baseball player, hockey player, basketball player, swimmer, skier, snowboarder, street performer, vendor, rider""")
GROUPS = words("""men, women, boys, girls, children, people, young men, young women, teenagers, workers, soldiers, players,
cyclists, musicians, dancers, students, friends, kids, tourists, runners, skiers, police officers, older men""")
MANY = words(
    "two, three, four, five, several, some, a group of, many, a few, a crowd of, a couple of, a team of"
)
LOOKS = words("""in a red shirt, in a blue jacket, wearing a hat, with long hair, in a black suit, wearing sunglasses, in a white
dress, with a beard, in a yellow raincoat, wearing a helmet, in jeans, with a backpack, in a green sweater, wearing a uniform,
with glasses, in shorts, with short hair, in a wheelchair, wearing a scarf, in an orange vest""")
ANIMALS = words("""dog, cat, horse, monkey, panda, elephant, bird, squirrel, kitten, puppy, cow, sheep, tiger, lion, rabbit,
turtle, duck, goat, brown dog, black dog, white cat, black and white dog, small dog, large dog, hamster, parrot, fox, deer, bear,
lemur, seal, pig, donkey, camel, giraffe, zebra, swan, chicken, lizard, snake, fish, frog, sloth, kangaroo, owl""")
FOOD = words("""an onion, a potato, a tomato, carrots, a cucumber, garlic, some meat, a piece of chicken, shrimp, pasta, bread,
a cake, an egg, an apple, a banana, a pineapple, mushrooms, rice, a pizza, a sandwich, vegetables, a lemon, ginger, butter, tofu,
a fish, broccoli, cheese, an orange, a watermelon, peppers, dough, soup, noodles, cookies, a steak, herbs, cabbage, a mango""")
COOKING = words("""slicing, cutting, peeling, chopping, cooking, frying, mixing, washing, eating, stirring, dicing, preparing,
grating, boiling, seasoning, baking, grilling, mashing, holding, pouring sauce on, tasting, buying, selling, serving, picking""")
MUSIC = words("""a guitar, the piano, a flute, the drums, a violin, a trumpet, a keyboard, the harp, an electric guitar,
a saxophone, the cello, a harmonica, an accordion, a bamboo flute, the bass""")
GAMES = words(
    "football, soccer, basketball, tennis, chess, cards, baseball, volleyball, golf, rugby, hockey, a video game, badminton"
)
RIDES = words("""a horse, a bicycle, a motorcycle, a skateboard, an elephant, a scooter, a wave, a bull, a mountain bike, a camel,
a unicycle, a bus, a train, a roller coaster, a sled, an escalator""")
VEHICLES = words(
    "a car, a truck, a tractor, a bus, a boat, a sports car, a van, a taxi, a go-kart, a racing car"
)
DOING = words("""reading a book, reading a newspaper, talking on the phone, typing on a laptop, taking a photo, looking at a map,
putting on makeup, brushing her hair, combing his hair, lifting weights, doing push-ups, climbing a rock wall, climbing a rope,
jumping into a pool, swimming in the sea, walking a dog, pushing a stroller, carrying a box, carrying a baby, throwing a ball,
kicking a ball, catching a fish, feeding a cat, petting a dog, opening a package, closing a door, folding paper, drawing a picture,
painting a wall, writing a letter, sewing a dress, washing a car, sweeping the floor, cleaning a window, digging a hole, planting a
tree, watering flowers, mowing the lawn, shooting a gun, firing a rifle, drinking coffee, drinking water, smoking a cigarette,
blowing out candles, opening a gift, dancing, singing, singing on a stage, laughing, crying, sleeping, sitting on a bench, standing
in line, waiting for a bus, waving a flag, holding a sign, holding a baby, riding an escalator, running, jogging, skating, skiing
down a hill, doing a trick, doing a handstand, doing a flip, hugging a friend, kissing, shaking hands, speaking into a microphone,
giving a speech, taking a test, playing with a toy, building a sand castle, flying a kite, jumping on a trampoline, jumping rope,
rowing a boat, paddling a canoe, fixing a bike, hammering a nail, drilling a hole, cutting paper, cutting wood, tying a shoe,
shaving, applying lipstick, looking out of a window, looking through a telescope, walking down the street, crossing the road, walking
on a tightrope, falling off a horse, leaning against a wall, lying on a couch, pointing at something, raising a hand, eating lunch""")
BEASTS = words("""running through the snow, running on the grass, playing with a ball, playing with a toy, chasing a ball, chasing
a cat, sleeping on a couch, sleeping on a bed, eating grass, eating food from a bowl, eating a carrot, swimming in a pond, swimming in
the water, jumping over a fence, jumping into the water, looking out of a window, lying on the floor, standing in a field, walking
along a beach, walking through the forest, drinking milk, drinking water, climbing a tree, sitting on a branch, sitting in a box,
licking a bottle, catching a frisbee in the air, carrying a stick in its mouth, playing a keyboard, barking at a stranger, hiding
under a table, rolling on the ground, staring at the camera, digging in the sand, shaking off water, flying over a lake""")
THINGS = words("""red car, train, white bus, blue bicycle, old truck, passenger plane, fishing boat, wooden table, brown horse
statue, television, laptop, vase of flowers, plate of food, bowl of fruit, cup of coffee, pile of books, leather couch, street sign,
clock, motorcycle, cruise ship, yellow taxi, helicopter, brick building, stone bridge, lighthouse, wooden chair, birthday cake,
teddy bear, kite, umbrella, refrigerator, toilet, double-decker bus, steam engine, glass bottle, black cat, church, tent, piano""")
STATES = words("""is parked on the street, is on a table, is parked in front of a house, is moving along the tracks, is in the
middle of a room, is flying in the sky, is on the water, stands next to a tree, is covered in snow, is near a window, sits on the
grass, is on display, is crossing a bridge, is in a parking lot, hangs on a wall, is at a station, lies on the ground, is for sale,
stands in a garden, is on a runway, is surrounded by people, is behind a fence, is in the background, is under a bridge""")
PLACES = words("""in a park, on the beach, on a street, in a kitchen, in the snow, on a stage, in front of a building, at night, in a
field, on a mountain, near a lake, in a restaurant, at a table, in the rain, on a couch, in a gym, in a pool, outside, indoors, on a
bridge, in a garden, on a roof, in the woods, at a market, in a city, on a boat, in a crowd, at a party, on the grass, by a river,
in a classroom, in an office, at the airport, in a stadium, on a sidewalk, beside a fence, on a bed, in a bathroom, in a car""")
ING = re.compile(r"^(\w+?)ing\b")


def a(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def deed(rng: random.Random) -> str:
    pick = rng.random()
    if pick < 0.2:
        return f"{rng.choice(COOKING)} {rng.choice(FOOD)}"
    if pick < 0.3:
        return f"playing {rng.choice(MUSIC)}"
    if pick < 0.36:
        return f"playing {rng.choice(GAMES)}"
    if pick < 0.43:
        return f"riding {rng.choice(RIDES)}"
    if pick < 0.47:
        return f"driving {rng.choice(VEHICLES)}"
    return rng.choice(DOING)


def captions(rng: random.Random) -> Iterator[str]:
    while True:
        pick, many = rng.random(), False
        if pick < 0.12:
            thing = rng.choice(THINGS)
            if rng.random() < 0.7:
                yield f"{a(thing).capitalize()} {rng.choice(STATES)}."
            else:
                yield f"{a(thing).capitalize()} and {a(rng.choice(THINGS))} {rng.choice(PLACES)}."
            continue
        if pick < 0.35:
            many = rng.random() < 0.15
            beast = rng.choice(ANIMALS)
            subject = f"two {beast}s" if many and beast != "fish" else a(beast)
            many, action = many and beast != "fish", rng.choice(BEASTS)
        else:
            many = rng.random() < 0.3
            subject = f"{rng.choice(MANY)} {rng.choice(GROUPS)}" if many else a(rng.choice(PEOPLE))
            if rng.random() < 0.2:
                subject += f" {rng.choice(LOOKS)}"
            action = deed(rng)
        if rng.random() < 0.1:
            subject = re.sub(r"^an? ", "the ", subject)
        tail = f" {rng.choice(PLACES)}" if rng.random() < 0.35 else ""
        form, be = rng.random(), "are" if many else "is"
        if form < 0.6:
            text = f"{subject} {be} {action}{tail}"
        elif form < 0.78:
            text = f"{subject} {action}{tail}"
        elif form < 0.84:
            text = f"{subject} {be} not {action}{tail}"
        elif form < 0.88:
            text = (
                f"there is no {re.sub(r'^(an?|the|two|some|several) ', '', subject)} {action}{tail}"
            )
        elif form < 0.94:
            text = f"{subject} {be} {action} and {rng.choice(DOING)}{tail}"
        else:
            text = f"{subject} {be} {action} while {a(rng.choice(PEOPLE))} is {rng.choice(DOING)}"
        yield text[0].upper() + text[1:] + ("." if rng.random() < 0.8 else "")


LANDS = words("""China, Russia, India, Iran, Iraq, Syria, Israel, Egypt, Turkey, Pakistan, Afghanistan, Ukraine, Germany, France,
Britain, Spain, Italy, Greece, Japan, North Korea, South Korea, Thailand, Indonesia, the Philippines, Vietnam, Myanmar, Bangladesh,
Nepal, Sri Lanka, Australia, New Zealand, Canada, Mexico, Brazil, Argentina, Venezuela, Colombia, Chile, Peru, Cuba, Nigeria, Kenya,
Somalia, Sudan, South Africa, Mali, Libya, Tunisia, Algeria, Lebanon, Jordan, Yemen, Saudi Arabia, Poland, Hungary, Sweden, Norway""")
CITIES = words("""Beijing, Moscow, Delhi, Mumbai, Tehran, Baghdad, Damascus, Jerusalem, Gaza, Cairo, Istanbul, Kabul, Kiev, Berlin,
Paris, London, Madrid, Rome, Athens, Tokyo, Seoul, Bangkok, Jakarta, Manila, Sydney, Toronto, New York, Chicago, Boston, Texas,
California, Florida, Washington, Mexico City, Rio de Janeiro, Lagos, Nairobi, Johannesburg, Beirut, Karachi, Hong Kong, Dublin""")
WHO = words("""president, prime minister, foreign minister, opposition leader, army, parliament, police, government, central bank,
court, rebels, finance minister, troops, officials, protesters, lawmakers, navy, health ministry, police chief, defense minister""")
DEEDS = words("""rejects peace talks, calls for early elections, denies spying charges, agrees to nuclear talks, warns of new
sanctions, resigns after scandal, wins second term, visits flood victims, vows to fight corruption, condemns attack on embassy,
approves new budget, bans protests, raises interest rates, recalls ambassador, frees hundreds of prisoners, delays vote on reform,
accuses rivals of fraud, orders probe into crash, seeks aid from neighbors, closes border after clashes, launches satellite, tests
missile, signs trade deal, to meet pope, backs ceasefire plan, arrests journalists, offers to resign, cuts growth forecast, blocks
website, sends troops to border, loses confidence vote, dies at 84, announces cabinet, hosts climate summit, suspends aid""")
EVENTS = words("""bus crash, car bomb, suicide attack, plane crash, train derailment, earthquake, flood, landslide, factory fire,
hotel fire, mine blast, shooting, typhoon, building collapse, ferry accident, air strike, stampede, heat wave, drone strike, riot""")
CRIMES = words(
    "murder, fraud, bribery, spying, drug smuggling, tax evasion, match fixing, hacking, arson, kidnapping, theft, bombing"
)
FIRMS = words("""the carmaker, the airline, the bank, the software maker, the chip maker, the oil company, the drug maker, the phone
company, the retailer, the media group, the insurer, the steel producer, the food company, the internet company, the broker""")
MOVES = words(
    "rose, fell, climbed, slipped, jumped, dropped, gained, lost, edged up, edged down, surged, tumbled, added, shed"
)
CAUSES = words("""earnings disappoint, oil prices climb, hopes of a deal grow, investors await data, the dollar weakens, fears about
debt return, jobs report beats forecasts, trade talks stall, banks report losses, growth slows, the central bank holds rates""")
CLAIMS = words("""the talks would continue next week, no decision had been made, the company expects sales to grow, the investigation is
still under way, the victims had been taken to a hospital, the law would take effect in January, the report was not accurate, more
troops were needed, the plan would cost too much, the suspect acted alone, the agreement was a step forward, the ban was necessary,
prices would remain stable, the decision would be appealed, the evidence was not enough, the virus had been contained""")
SPEAKERS = words("""a spokesman, a spokeswoman, the minister, the company, police, the judge, the mayor, a lawyer for the family,
the president, officials, an analyst, the coach, a witness, the agency, the chairman, prosecutors, a doctor, the governor""")
DAYS = words(
    "Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday, last week, earlier this month, this year, late Tuesday"
)


def news(rng: random.Random) -> Iterator[str]:
    def number() -> str:
        return str(
            rng.choice([rng.randrange(2, 20), rng.randrange(20, 100), rng.randrange(100, 1000)])
        )

    def body() -> str:
        return f"{rng.choice(LANDS).removeprefix('the ')} {rng.choice(WHO)}"

    forms: list[Callable[[], str]] = [
        lambda: f"{body()} {rng.choice(DEEDS)}",
        lambda: f"{body()} {rng.choice(DEEDS)}",
        lambda: (
            f"{number()} {rng.choice(['killed', 'dead', 'injured', 'missing', 'feared dead'])} in {rng.choice(LANDS + CITIES)} {rng.choice(EVENTS)}"
        ),
        lambda: f"Death toll in {rng.choice(LANDS)} {rng.choice(EVENTS)} rises to {number()}",
        lambda: (
            f"{rng.choice(['At least', 'More than', 'Nearly', 'About'])} {number()} people were {rng.choice(['killed', 'hurt', 'wounded', 'rescued', 'evacuated'])} in a {rng.choice(EVENTS)} in {rng.choice(CITIES)} on {rng.choice(DAYS[:7])}."
        ),
        lambda: (
            f"{rng.choice(LANDS)}, {rng.choice(LANDS)} {rng.choice(['sign trade deal', 'hold talks', 'trade blame', 'to resume ties', 'agree on border', 'exchange fire', 'meet over refugees'])}"
        ),
        lambda: (
            f"Police {rng.choice(['arrest', 'question', 'charge', 'release', 'hunt'])} {rng.choice(['man', 'woman', 'teenager', number() + ' suspects', 'former minister'])} over {rng.choice(CITIES)} {rng.choice(CRIMES)}"
        ),
        lambda: (
            f"{rng.choice(['Stocks', 'Shares', 'Oil prices', 'Asian markets', 'Gold', 'European shares', 'Wall Street', 'The euro'])} {rng.choice(['rise', 'fall', 'slip', 'climb', 'end higher', 'close lower', 'gain', 'drop'])} as {rng.choice(CAUSES)}"
        ),
        lambda: (
            f"The {rng.choice(['index', 'broader index', 'blue-chip average', 'stock', 'technology index', 'dollar', 'benchmark bond'])} {rng.choice(MOVES)} {rng.randrange(1, 300)}.{rng.randrange(100):02d} points, or {rng.randrange(1, 9)}.{rng.randrange(10)} percent, to {rng.randrange(1, 9)},{rng.randrange(1000):03d}.{rng.randrange(100):02d}."
        ),
        lambda: (
            f"Shares of {rng.choice(FIRMS)} {rng.choice(MOVES)} {rng.randrange(1, 30)} percent to ${rng.randrange(2, 200)}.{rng.randrange(100):02d} on {rng.choice(DAYS[:7])}."
        ),
        lambda: (
            f"{rng.choice(SPEAKERS).capitalize()} said {rng.choice(['', 'on ' + rng.choice(DAYS[:7]) + ' '])}that {rng.choice(CLAIMS)}."
        ),
        lambda: (
            f"{rng.choice(SPEAKERS).capitalize()} {rng.choice(['denied', 'confirmed', 'told reporters', 'acknowledged', 'warned', 'testified'])} that {rng.choice(CLAIMS)}."
        ),
        lambda: (
            f'"{rng.choice(CLAIMS).capitalize()}," {rng.choice(SPEAKERS)} said {rng.choice([*DAYS[7:], "in a statement", "in an interview", "at a news conference"])}.'
        ),
        lambda: (
            f"{rng.choice(FIRMS).capitalize()} reported a {rng.choice(['profit', 'loss', 'net income'])} of ${rng.randrange(2, 900)} million, or {rng.randrange(2, 99)} cents a share, compared with ${rng.randrange(2, 900)} million a year {rng.choice(['ago', 'earlier'])}."
        ),
        lambda: (
            f"{body()} {rng.choice(DEEDS)}, {rng.choice(SPEAKERS)} said on {rng.choice(DAYS[:7])}."
        ),
        lambda: (
            f"{rng.choice(LANDS)} {rng.choice(['beat', 'lose to', 'draw with', 'face', 'hold off'])} {rng.choice(LANDS)} in {rng.choice(['World Cup qualifier', 'first Test', 'final', 'opening match', 'Davis Cup', 'semi-final'])}"
        ),
    ]
    while True:
        text = rng.choice(forms)()
        yield text[0].upper() + text[1:]


TASKS = words("""clean a cast iron pan, remove rust from a knife, store fresh herbs, cook rice without a rice cooker, freeze bread, keep
guacamole from turning brown, sharpen a kitchen knife, replace a bicycle chain, patch a tire, paint a bathroom, hang a heavy mirror,
fix a leaking faucet, insulate an attic, install a dimmer switch, grow tomatoes on a balcony, get rid of ants, write a cover letter,
ask for a raise, quit a job politely, learn a new language, remember names, travel with a baby, pack for a long trip, find a cheap
flight, get a visa, renew a passport, travel with medication, back up a phone, speed up an old laptop, recover deleted files, rename
many files at once, sort a list of objects, parse a date, connect to a database, undo a commit, merge two branches, reset a password,
choose a camera lens, photograph the moon, take sharp photos in low light, edit a video, tune a guitar, learn the piano as an adult,
write a believable villain, end a short story, publish a novel, train for a marathon, lose weight, fall asleep faster, stop snoring,
teach a child to read, calm a crying baby, housebreak a puppy, introduce two cats, feed a stray cat, invest a small amount of money,
pay off a loan early, save for retirement, file taxes late, rent an apartment, sell a used car, negotiate a price, cite a web page,
prove a theorem by induction, integrate this function, measure the speed of light, build a simple circuit, solder a wire, brew beer at
home, make yogurt, bake bread without yeast, thicken a sauce, season a wok, roast a chicken, peel garlic quickly, poach an egg""")
TOPICS = words("""the warranty, your budget, the recipe, the manual, the weather, the contract, the software, your employer, the airline,
the law in your country, the size of the room, the age of the child, your doctor, the context, the quality of the light, the dough, the
oven, the operating system, the publisher, the editor, your landlord, the bank, the teacher, the license, the dog, the data, the soil""")
HEDGES = words(
    "I think, In my experience, As far as I know, Personally, In general, Usually, Of course, Unfortunately, To be honest, Yes"
)


def forum(rng: random.Random) -> Iterator[str]:
    def task() -> str:
        return rng.choice(TASKS)

    forms: list[Callable[[], str]] = [
        lambda: f"How do I {task()}?",
        lambda: f"How can I {task()}?",
        lambda: (
            f"What is the {rng.choice(['best', 'easiest', 'cheapest', 'safest', 'fastest'])} way to {task()}?"
        ),
        lambda: (
            f"Is it {rng.choice(['possible', 'safe', 'legal', 'worth it', 'hard', 'a good idea'])} to {task()}?"
        ),
        lambda: f"Should I {task()} before I {task()}?",
        lambda: (
            f"Do I need {rng.choice(['a permit', 'special tools', 'experience', 'help', 'a license'])} to {task()}?"
        ),
        lambda: f"How long does it take to {task()}?",
        lambda: f"Why would anyone {task()}?",
        lambda: (
            f"You {rng.choice(['should', 'could', 'can', 'have to', 'do not need to', 'should not', 'might want to', 'cannot'])} {task()}."
        ),
        lambda: (
            f"{rng.choice(HEDGES)}, it {rng.choice(['depends on', 'has nothing to do with', 'is a question of', 'comes down to'])} {rng.choice(TOPICS)}."
        ),
        lambda: (
            f"{rng.choice(HEDGES)}, you {rng.choice(['should', 'can', 'do not have to', 'must'])} {rng.choice(['ask about', 'check', 'read', 'ignore', 'worry about', 'look at', 'pay attention to'])} {rng.choice(TOPICS)} first."
        ),
        lambda: (
            f"I {rng.choice(['tried to', 'want to', 'had to', 'would not', 'managed to', 'never learned to', 'need to'])} {task()}, but {rng.choice(TOPICS)} {rng.choice(['was a problem', 'did not help', 'made it easy', 'was fine', 'confused me'])}."
        ),
        lambda: (
            f"The {rng.choice(['answer', 'short answer', 'problem', 'key', 'trick', 'rule'])} is {rng.choice(['simple', 'that it depends', 'to be patient', 'to start early', 'not obvious'])}: {task()}."
        ),
        lambda: (
            f"{rng.choice(['There is nothing wrong with', 'There is no point in', 'I would avoid', 'I recommend', 'It is not about'])} {rng.choice(TOPICS)}."
        ),
    ]
    while True:
        yield rng.choice(forms)()


GOOD = words("""funny, moving, gripping, charming, clever, touching, beautiful, brilliant, witty, thrilling, warm, honest, inventive,
hilarious, powerful, tender, elegant, smart, fascinating, delightful, engaging, fresh, haunting, joyous, memorable, heartfelt, superb,
remarkable, exciting, subtle, sweet, intelligent, compelling, entertaining, absorbing, wonderful, stunning, rewarding, original,
perfect, poignant, sharp, lively, hypnotic, graceful, likable, uplifting, satisfying, suspenseful, imaginative, excellent, great""")
BAD = words("""dull, boring, tedious, predictable, clumsy, flat, lifeless, silly, stupid, awful, shallow, bland, pointless, messy,
confusing, painful, forgettable, annoying, contrived, stale, lazy, pretentious, uneven, cold, sluggish, overlong, trite, derivative,
ridiculous, empty, hollow, incoherent, unfunny, dreary, mediocre, tiresome, ugly, preachy, cliched, sloppy, grating, terrible, bad,
disappointing, amateurish, joyless, cheap, mindless, unconvincing, sentimental, obnoxious, depressing, wooden, pathetic, inept""")
HOW = words("""very, quite, surprisingly, deeply, utterly, rather, truly, oddly, often, never, consistently, almost, too, somewhat,
genuinely, painfully, wonderfully, mildly, relentlessly, occasionally, not, not very, not at all, hardly, so, incredibly, merely""")
FILMS = words("""film, movie, comedy, drama, thriller, documentary, romance, story, picture, debut, sequel, remake, horror film, satire,
love story, character study, action movie, animated film, musical, epic, fable, portrait, adventure, mystery, crime drama, farce, tale""")
PARTS = words("""acting, script, plot, direction, dialogue, humor, ending, pacing, soundtrack, cinematography, cast, premise, romance,
editing, lead performance, story, screenplay, special effects, characters, jokes, first half, final act, score, chemistry, message,
battery, screen, sound quality, camera, software, customer service, price, design, keyboard, manual, delivery, fit, taste, room, staff""")
DOES = words("""will make you laugh, never finds its tone, runs out of steam, keeps you guessing, breaks your heart, goes nowhere, wastes
a good cast, rewards your patience, insults your intelligence, stays with you for days, falls apart in the end, has no idea what it
wants to say, earns every tear, puts you to sleep, has its heart in the right place, tries too hard, is worth seeing twice, should have
gone straight to video, offers nothing new, says something true about love, looks gorgeous but feels empty, works better than it
should, never comes alive, is a pleasure from start to finish, leaves you cold, loses its nerve, has moments of real beauty, drags on
far too long, gets everything right, is full of surprises, knows exactly what it is, feels like homework, lacks any real tension""")
ABOUT = words("""grief, friendship, war, growing up, a family in crisis, two lonely people, a small town, an aging singer, fathers and
sons, first love, greed, faith, a bank robbery, immigrants, a marriage, memory, football, a murder, the cost of fame, revenge, growing
old, a dying teacher, childhood, loyalty, a haunted house, life in the city, a road trip, class, ambition, politics""")


def opinions(rng: random.Random) -> Iterator[str]:
    def quality() -> str:
        word = rng.choice(GOOD if rng.random() < 0.5 else BAD)
        return f"{rng.choice(HOW)} {word}" if rng.random() < 0.4 else word

    def film() -> str:
        return f"{a(quality())} {rng.choice(FILMS)}"

    forms: list[Callable[[], str]] = [
        film,
        quality,
        lambda: f"{a(rng.choice(GOOD))}, {quality()} {rng.choice(FILMS)}",
        lambda: f"{a(rng.choice(BAD))}, {quality()} and {quality()} {rng.choice(FILMS)}",
        lambda: f"{quality()} and {quality()}",
        lambda: f"{film()} that {rng.choice(DOES)}",
        lambda: f"{film()} about {rng.choice(ABOUT)} that {rng.choice(DOES)}",
        lambda: f"{film()} about {rng.choice(ABOUT)}",
        lambda: f"it's {film()}, but it {rng.choice(DOES)}",
        lambda: f"the {rng.choice(PARTS)} is {quality()}",
        lambda: (
            f"The {rng.choice(PARTS)} is {quality()}, but the {rng.choice(PARTS)} is {quality()}."
        ),
        lambda: f"The {rng.choice(PARTS)} and the {rng.choice(PARTS)} are {quality()}.",
        lambda: f"this {rng.choice(FILMS)} {rng.choice(DOES)}",
        lambda: (
            f"{rng.choice(['despite', 'because of', 'thanks to', 'even with', 'except for', 'without'])} its {quality()} {rng.choice(PARTS)}, the {rng.choice(FILMS)} {rng.choice(DOES)}"
        ),
        lambda: (
            f"{rng.choice(['I loved', 'I hated', 'I liked', 'I could not stand', 'I was bored by', 'I enjoyed', 'I expected more from'])} the {rng.choice(PARTS)} of this {rng.choice(FILMS)}."
        ),
        lambda: f"as {film()}, it {rng.choice(DOES)}, and the {rng.choice(PARTS)} is {quality()}",
        lambda: (
            f"{rng.choice(['one of the most', 'the most', 'perhaps the most', 'not the most'])} {rng.choice(GOOD + BAD)} {rng.choice(FILMS)}s {rng.choice(['of the year', 'in years', 'I have seen', 'ever made', 'of this season'])}"
        ),
        lambda: (
            f"if you like {rng.choice(GOOD + BAD)} {rng.choice(FILMS)}s about {rng.choice(ABOUT)}, this one {rng.choice(DOES)}"
        ),
    ]
    while True:
        yield rng.choice(forms)()


CLAUSE = re.compile(
    r"(?:\s*[,;:]\s+|\s+-+\s+|\s+(?=(?:and|but|that|which|while|because|although|with|when|as|if)\s))"
)
JOINTS = (
    ", ",
    ", and ",
    ", but ",
    " and ",
    " but ",
    "; ",
    " that is ",
    " with ",
    ", yet ",
    " because ",
    " though ",
)


def spliced(reviews: Iterable[str], rng: random.Random) -> Iterator[str]:
    """Phrases of reviews, and clauses of two of them in one sentence."""
    reviews = list(reviews)
    clauses = [
        c.strip(" .") for text in reviews for c in CLAUSE.split(text) if 2 <= len(c.split()) <= 18
    ]
    while True:
        pick = rng.random()
        if pick < 0.3:
            part = rng.choice(reviews).strip(" .").split()
            n = rng.randrange(2, 16)
            start = rng.randrange(max(1, len(part) - n + 1))
            yield " ".join(part[start : start + n])
        elif pick < 0.5:
            yield rng.choice(clauses)
        else:
            text = rng.choice(JOINTS).join(rng.sample(clauses, 2 if pick < 0.85 else 3))
            yield text + rng.choice(["", ".", " ."])


OWN: dict[str, tuple[Callable[[random.Random], Iterator[str]], int]] = {
    "captions": (captions, 150_000),
    "news": (news, 90_000),
    "forum": (forum, 20_000),
    "opinions": (opinions, 90_000),
}
SPLICED = 250_000
