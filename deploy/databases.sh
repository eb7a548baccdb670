#!/usr/bin/env bash
# Run once by Postgres's image, on an empty volume: a database with an owner of its own for each server.
set -euo pipefail
: "${PREFECT_DATABASE_PASSWORD:?}" "${MLFLOW_DATABASE_PASSWORD:?}"

for name in prefect mlflow; do
  variable="${name^^}_DATABASE_PASSWORD"
  # psql quotes :'password'; an argument of the command would be seen by all on the machine.
  PASSWORD="${!variable}" psql --quiet --set ON_ERROR_STOP=1 --set name="$name" \
    --username "${POSTGRES_USER:-postgres}" --dbname postgres <<'SQL'
\getenv password PASSWORD
CREATE ROLE :"name" LOGIN PASSWORD :'password';
CREATE DATABASE :"name" OWNER :"name";
REVOKE ALL ON DATABASE :"name" FROM PUBLIC;
SQL
done
