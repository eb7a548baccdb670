#!/usr/bin/env bash
# The project's volume, filled from the image at the first run and brought to the image's commit at
# each later one. Edits in the volume stay; where one is in the way, git says so and the run fails.
set -euo pipefail
image=${ASTRA_IMAGE_PROJECT:-/opt/astra}
volume=${ASTRA_PROJECT:-/srv/astra}

if [ ! -e "$volume/.git" ]; then
  git clone --quiet "$image" "$volume"
else
  git -C "$volume" fetch --quiet "$image" HEAD
  git -C "$volume" merge --quiet --ff-only FETCH_HEAD
fi
install -d -m 700 "$volume"/{.dvc,data,models,reports}
