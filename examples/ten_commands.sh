#!/bin/sh
# From an empty folder and an empty environment to a model that is used, corrected and served: ten commands.
#
#     python -m venv env && . env/bin/activate && sh ten_commands.sh [WHEEL]
#
# The rows are 2,000 functions of scientific Python packages, written as CSV first: their descriptions, and the functions
# under their See Also. Take your own table in their place. The last line says how long the nine commands after the
# installation took.
set -eu

step() { printf '\n== %s\n' "$*" >&2; }

step 1. install
python -m pip install --quiet --disable-pip-version-check "${1:-megalabel}[demo,serve]"
start=$(date +%s)

# Preparation: rows.csv with 1,600 rows, fresh.csv and more.csv with 200 others each.
python - <<'PYTHON'
import csv
import numpy as np
import megalabel as ml

data = ml.load("pydocs")
rows = np.random.default_rng(0).permutation(len(data.train))[:2000]
for name, part in {"rows": rows[:1600], "more": rows[1600:1800], "fresh": rows[1800:]}.items():
    with open(f"{name}.csv", "w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["text", "labels"])
        for row in part:
            labels = data.train.targets[row].indices
            writer.writerow([data.train.texts[row], "|".join(data.labels.uids[label] for label in labels)])
PYTHON

step 2. convert
megalabel data convert rows.csv set --separator '|'

step 3. train
megalabel train auto --data set --out run

step 4. look
megalabel data info set

step 5. predict
megalabel predict run --input more.csv --out predicted.csv -k 3

# A person looks at predicted.csv and writes the right labels; here they are known, in the column input_labels.
step 6. correct
python - <<'PYTHON'
import csv

with open("predicted.csv", newline="") as rows, open("corrections.csv", "w", newline="") as out:
    writer = csv.writer(out)
    writer.writerow(["text", "labels"])
    writer.writerows([row["text"], row["input_labels"]] for row in csv.DictReader(rows))
PYTHON

step 7. update
megalabel update run --data corrections.csv --separator '|'

step 8. evaluate on new rows
megalabel evaluate run --data fresh.csv --separator '|'

step 9. serve
megalabel serve run --port 0 > serve.log 2>&1 &
server=$!
trap 'kill $server 2> /dev/null || true' EXIT
python - <<'PYTHON'
import json
import re
import time
import urllib.request

while not (found := re.search(r"http://127\.0\.0\.1:\d+", open("serve.log").read())):
    time.sleep(0.1)
body = json.dumps({"texts": ["inverse of a square matrix"], "k": 3}).encode()
request = urllib.request.Request(f"{found[0]}/predict", body, {"Content-Type": "application/json"})
print(urllib.request.urlopen(request).read().decode())
PYTHON
kill $server
wait $server || true

# The dual encoder of the model, for sentence-transformers and what builds on it.
step 10. export
megalabel export run --to sentence-transformers --out exported

printf '\nten commands: %s s after the installation\n' "$(($(date +%s) - start))"
