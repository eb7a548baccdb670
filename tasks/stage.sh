#!/bin/sh
# Runs one stage with the interpreter the project is installed in: `sh tasks/stage.sh training`.
#
# DVC hands a stage's command to the caller's shell, which knows nothing of the environment that
# `.venv/bin/dvc` itself lives in, so `python` alone may mean any interpreter; and a path such as
# `.venv/bin/python` in dvc.yaml would break other environments and DVC's experiments, which run in
# a copy of the tree below .dvc/tmp. The order: what the caller names, the activated environment if
# the project is installed in it, the nearest .venv above this folder, python3.
python=${ASTRA_PYTHON:-}
if [ -z "$python" ] && [ -n "${VIRTUAL_ENV:-}" ] && [ -x "$VIRTUAL_ENV/bin/astra" ]; then
  python=$VIRTUAL_ENV/bin/python
fi
folder=$PWD
while [ -z "$python" ] && [ "$folder" != / ]; do
  if [ -x "$folder/.venv/bin/python" ]; then
    python=$folder/.venv/bin/python
  fi
  folder=$(dirname "$folder")
done
# Tensors are aligned, and glibc keeps the few bytes beside one for small objects: freed, its block
# holds no tensor of the same size, and the process grows. Without these two it takes up to half.
export GLIBC_TUNABLES="${GLIBC_TUNABLES:-glibc.malloc.tcache_count=0:glibc.malloc.mxfast=0}"
exec "${python:-python3}" -m tasks "$@"
