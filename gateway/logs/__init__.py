"""The routers' logs as a gateway knows them: numbers seen, missing, to be read next. Pure."""
