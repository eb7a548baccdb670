"""The words of the built-in grammar, openers and polite lines; a test keeps them up to date."""

_WORDS = """
a about actors add adding after again all alone always am an and anna any are as ask asked at
aunt back bake baking be beans beautiful been bees before beginner being ben better bike boards
boat bowls brakes bread bricks bridges broken build building but cakes called calm can candles
cards cares carols carrots chapters charts chess child choir chords club coach colors combs cook
cooking could cousin crusts dance dancing dates day days deserves did dinner do doing doors
doubt down drawers dream drive driving edit editing endings essay even every everyone exaggerate
family feel few figures film find fine finished fix fixing for forgive frames friday friend fuss
games garden gears glad got grandmother gray great guests guitar half happen happy has have hear
help hey hills history hive home honestly hope hour house how hurt hymns i if in invitations is
it jars joy just keep keeping kind kitchen knights know knows labels laps last learn learning
lenses lessons let lights like likes lines listen loaves long look love lovely made makes manage
many maps maria matter me mean miles minutes moment monday month more morning moves much must my
myself neat neighbor nephew never next night no nobody north not notes nothing noticed novel now
oars odd of oh on one ones onions only openings or ordinary our ovens owner pages paint painting
party pawns paws pedals perfect pipes planks plant planting play playing please plots poem
polite praised prices prize proud puppy quilt quit quotes race read reading reject report rhymes
ride riding right rolls roof rooks ropes roses run running sail sailing sails saved saw says
scared scenes school seams seats see seeds seem sell selling send sending set sew sewing shaky
shelves shoes shop show showed signs since sing singing sister sleep so solos some something
songs sorry sound sounds soup sources south special spices splendid spring sprints squares
stairs start steps still stop strange street strings student summer sunday superb tables take
talked teacher telling ten tents than thank thanks that the there these they thin think this
threads three tiles to today together told tom tomorrow tonight too took tourist town toys
tracks train training treats trust tunes tunnels turns two uncle understand unfair uphill van
verses very village visit voices wagons walks walls waltz was we weak weeds week weeks well what
wheels where whether whoever why will windows winter with won wonderful words work worried would
write writing wrong year yes yesterday you your
"""
GRAMMAR_WORDS = frozenset(_WORDS.split())
