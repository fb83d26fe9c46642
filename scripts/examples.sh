#!/bin/sh
# Make the example notebooks again: the first is the export of a real run with the offline analyst, the
# others are written by hand and run from top to bottom.
# Afterwards look at what changed (git diff) and run the tests, which do both again and compare.
set -eu
cd "$(dirname "$0")/../example_notebooks"
agent=../.venv/bin/kernel-agent
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

make_example() { # NAME DATA QUESTION
  "$agent" run "$3" --model offline --data "data/$2" --out "$work/$1" --quiet
  "$agent" export "$work/$1" -o "$1.ipynb"
}

make_example 01_first_question penguins.csv \
  "Which species has the longest flippers on average?"

../.venv/bin/python ../scripts/play_examples.py
