"""Code words that make good secrets: no reply has one by chance, and other languages differ.

Each with its German, French, Spanish and Italian words, none of which is an English word or
contains the English one.
"""

from collections.abc import Mapping
from types import MappingProxyType

CODE_WORDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "MARIGOLD": ("Ringelblume", "souci", "caléndula", "calendola"),
        "SPARROW": ("Sperling", "moineau", "gorrión", "passero"),
        "THISTLE": ("Distel", "chardon", "cardo", "cardi"),
        "HEDGEHOG": ("Igel", "hérisson", "erizo", "riccio"),
        "PUMPKIN": ("Kürbis", "citrouille", "calabaza", "zucca"),
        "SQUIRREL": ("Eichhörnchen", "écureuil", "ardilla", "scoiattolo"),
        "RASPBERRY": ("Himbeere", "framboise", "frambuesa", "lampone"),
        "BLACKBIRD": ("Amsel", "merle", "mirlo", "merlo"),
        "SNOWFLAKE": ("Schneeflocke", "flocon de neige", "copo de nieve", "fiocco di neve"),
        "BUTTERFLY": ("Schmetterling", "papillon", "mariposa", "farfalla"),
        "LIGHTHOUSE": ("Leuchtturm", "phare", "faro", "fari"),
        "NUTCRACKER": ("Nussknacker", "casse-noisette", "cascanueces", "schiaccianoci"),
        "SEAGULL": ("Möwe", "mouette", "gaviota", "gabbiano"),
        "HAZELNUT": ("Haselnuss", "noisette", "avellana", "nocciola"),
        "MUSHROOM": ("Pilz", "champignon", "hongo", "fungo"),
        "LADYBIRD": ("Marienkäfer", "coccinelle", "mariquita", "coccinella"),
        "DRAGONFLY": ("Libelle", "libellule", "libélula", "libellula"),
        "STRAWBERRY": ("Erdbeere", "fraise", "fresa", "fragola"),
        "CUCUMBER": ("Gurke", "concombre", "pepino", "cetriolo"),
        "WOODPECKER": ("Specht", "pivert", "pájaro carpintero", "picchio"),
        "TORTOISE": ("Schildkröte", "tortue", "tortuga", "tartaruga"),
        "GOLDFINCH": ("Stieglitz", "chardonneret", "jilguero", "cardellino"),
        "BLUEBERRY": ("Heidelbeere", "myrtille", "arándano", "mirtillo"),
        "CORNFLOWER": ("Kornblume", "bleuet", "aciano", "fiordaliso"),
        "SNOWDROP": ("Schneeglöckchen", "perce-neige", "campanilla de invierno", "bucaneve"),
        "WINDMILL": ("Windmühle", "moulin à vent", "molino de viento", "mulino a vento"),
        "HOURGLASS": ("Sanduhr", "sablier", "reloj de arena", "clessidra"),
        "KINGFISHER": ("Eisvogel", "martin-pêcheur", "martín pescador", "martin pescatore"),
        "PORCUPINE": ("Stachelschwein", "porc-épic", "puercoespín", "porcospino"),
        "EARTHWORM": ("Regenwurm", "ver de terre", "lombriz", "lombrico"),
        "CAULIFLOWER": ("Blumenkohl", "chou-fleur", "coliflor", "cavolfiore"),
        "GRASSHOPPER": ("Heuschrecke", "sauterelle", "saltamontes", "cavalletta"),
        "BUTTERCUP": ("Butterblume", "bouton d'or", "ranúnculo", "ranuncolo"),
        "CHESTNUT": ("Kastanie", "châtaigne", "castaña", "castagna"),
    }
)
