#!/usr/bin/env bash
# Subject: sphinx-proof in a build that reads pages with several processes.
# On: sphinx-proof 0.4.0, Sphinx 7.4.7.
# Most expect: the extension declares that it is safe for parallel reading, so `-j 2` builds what `-j 1` builds.
# Observed: `-j 1` builds. `-j 2` raises an error for every book of more than five pages, also without any theorem,
#   because the extension's domain has no method that merges what the processes have read.
# Prints what it observed, and fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet sphinx==7.4.7 sphinx-proof==0.4.0
mkdir "$folder/book"
cd "$folder/book"
echo 'extensions = ["sphinx_proof"]' > conf.py
printf 'Start\n=====\n\n.. toctree::\n\n' > index.rst
for page in one two three four five six; do
    printf '%s\n=======\n\nText.\n' "$page" > "$page.rst"
    echo "   $page" >> index.rst
done
"$folder/venv/bin/python" -c 'import sphinx_proof
class App:
    def __getattr__(self, name): return lambda *given, **named: None
print("declared:", sphinx_proof.setup(App())["parallel_read_safe"])'
"$folder/venv/bin/sphinx-build" -q -W -j 1 -d "$folder/trees-1" . "$folder/html-1"
echo "-j 1: built"
if "$folder/venv/bin/sphinx-build" -q -T -j 2 -d "$folder/trees-2" . "$folder/html-2" > "$folder/log" 2>&1; then
    echo "-j 2: built"
    exit 1
fi
grep -q "merge_domaindata must be implemented in .*sphinx_proof.domain.ProofDomain" "$folder/log"
echo "-j 2: NotImplementedError: merge_domaindata of ProofDomain"
