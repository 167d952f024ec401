"""The way of single messages: sightings, races of their copies, spans."""
